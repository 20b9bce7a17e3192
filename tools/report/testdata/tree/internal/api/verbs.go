package api

import "example.test/tree/internal/operate"

var verbs = []operate.Action{operate.ActionOne, operate.ActionTwo}
