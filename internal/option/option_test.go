package option_test

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"duly.dev/duly/internal/option"
)

func TestRefuse(t *testing.T) {
	err := fmt.Errorf("run: %w", option.Refuse("call-time", io.EOF))
	var refused *option.Error
	if !errors.As(err, &refused) || refused.Option != "call-time" || !errors.Is(err, io.EOF) || err.Error() != "run: call-time: EOF" {
		t.Errorf("%v", err)
	}
}
