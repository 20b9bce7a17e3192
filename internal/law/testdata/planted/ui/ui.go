//go:build ignore

// Package ui keeps the law behind a build constraint too.
package ui

import _ "duly.dev/duly/schema" // breach: ui may not import schema
