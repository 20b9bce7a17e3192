package schema

// How memory is kept between commits.
const (
	keepBytes = 1 << 20 // that much in any case
	keepUses  = 64      // more only as long as one of so many uses needed a quarter of it
)

// scratch is memory that is used for one commit after the other. To let a large
// buffer go after each would mean to grow it again for the next, in memory that the
// kernel has to clear.
type scratch struct {
	buf  []byte
	most int // bytes, of any use since the last look
	uses int // since then
}

// empty begins another use.
func (s *scratch) empty() {
	s.most = max(s.most, len(s.buf))
	if s.uses++; s.uses == keepUses {
		if cap(s.buf) > keepBytes && cap(s.buf)/4 > s.most {
			s.buf = nil
		}
		s.most, s.uses = 0, 0
	}
	s.buf = s.buf[:0]
}
