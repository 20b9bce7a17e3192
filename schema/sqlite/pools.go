package sqlite

import "duly.dev/duly/schema"

// Pools are the pools of commits, of what owners read, and of people.
func (s *Store) Pools() []schema.PoolStat {
	reading, asking, changing := s.Queries()
	return []schema.PoolStat{schema.PoolStatOf("commits", s.writer, s.writes.Load()+changing), schema.PoolStatOf("reading", s.reader, reading), schema.PoolStatOf("asking", s.asking, asking)}
}
