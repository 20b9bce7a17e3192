package sqlite

import "duly.dev/duly/schema"

// Pools are the pools of the store: those of commits, of what owners read, and of people who ask.
func (s *Store) Pools() []schema.PoolStat {
	return []schema.PoolStat{schema.PoolStatOf("commits", s.writer), schema.PoolStatOf("reading", s.reader), schema.PoolStatOf("asking", s.asking)}
}
