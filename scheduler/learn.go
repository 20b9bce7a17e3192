package scheduler

// learn hands what was committed to those who learn from it how long steps take.
func (s *Shard) learn() {
	if s.cfg.Learn != nil {
		s.tellTo(s.cfg.Learn())
	}
}
