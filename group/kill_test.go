package group_test

import (
	"context"
	"os"
)

const memberEnv = "GROUP_MEMBER"

func member(ctx context.Context) error { _ = os.Args; return ctx.Err() }
