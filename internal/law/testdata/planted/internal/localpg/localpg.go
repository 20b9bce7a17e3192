// Package localpg imports nothing of the module.
package localpg

import _ "duly.dev/duly/internal/core" // breach: internal/localpg may not import internal/core
