// Package pgtest imports nothing of the module.
package pgtest

import _ "duly.dev/duly/internal/core" // breach: internal/pgtest may not import internal/core
