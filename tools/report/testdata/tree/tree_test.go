package tree_test

import "example.test/tree/internal/core"

var _ = core.InATest
