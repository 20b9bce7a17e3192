package expr

import (
	"errors"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
)

// sharedErrs are the errors that CEL makes once for all programs. The first program that fails with one writes its place
// into it, without a lock: so each is marked here, before there is another goroutine, and its place means nothing.
var sharedErrs = markSharedErrs()

func markSharedErrs() map[*types.Err]bool {
	all := map[*types.Err]bool{}
	add := func(err error) {
		if shared, ok := errors.AsType[*types.Err](err); ok {
			all[shared] = true
		}
	}
	if err, ok := types.LabelErrNode(1, types.NoSuchOverloadErr()).(*types.Err); ok {
		add(err)
	}
	if errEnv != nil {
		return all // nothing is compiled
	}
	for _, source := range []string{`timestamp(9223372036854775807)`, `math.abs(-9223372036854775807 - 1)`} {
		ast, issues := plainEnv.Compile(source)
		if issues.Err() != nil {
			continue
		}
		program, err := plainEnv.Program(ast)
		if err != nil {
			continue
		}
		_, _, err = program.Eval(cel.NoVars())
		add(err)
	}
	return all
}
