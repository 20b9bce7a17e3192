package schema

import (
	"context"
	"fmt"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/operate"
)

const (
	qDeprecated = `SELECT name, version, deprecated_at FROM plans WHERE deprecated_at IS NOT NULL ORDER BY name, version`
	qDeprecate  = `UPDATE plans SET deprecated_at = COALESCE(deprecated_at, ?3) WHERE name = ?1 AND version = ?2`
	qCurrent    = `UPDATE plans SET deprecated_at = NULL WHERE name = ?1 AND version = ?2`
)

// Deprecated implements Store, by name and version.
func (r *reader) Deprecated(ctx context.Context) (core.Deprecations, error) {
	marked, err := scanAll(ctx, r, func(row interface{ Scan(...any) error }) (core.Deprecation, error) {
		var d core.Deprecation
		var at instant
		err := row.Scan(&d.Name, &d.Version, &at)
		d.At = core.Instant(at)
		return d, err
	}, qDeprecated)
	return marked, about(err, "deprecated plans")
}

// Deprecate implements operate.VersionStore. at 0 takes a deprecation back; a version that is deprecated
// keeps the earlier time.
func (a *asked) Deprecate(ctx context.Context, name string, version int64, at core.Instant) error {
	query, args := qDeprecate, []any{operate.CleanText(name), version, a.of.time(at)}
	if at == 0 {
		query, args = qCurrent, args[:2]
	}
	n, err := a.execOne(ctx, query, args...)
	if err != nil {
		return fmt.Errorf("plan %s version %d: %w", core.QuoteShort(name), version, err)
	}
	if n == 0 {
		return fmt.Errorf("plan %s version %d: %w", core.QuoteShort(name), version, core.ErrNotFound)
	}
	return nil
}
