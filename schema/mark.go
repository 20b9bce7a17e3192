package schema

import (
	"context"
	"fmt"
	"strings"
)

// qMark has a row for each partition with its last commit; one for running operations, of which every write
// raises the epoch; and one for pauses, breakers and limits, with the revisions of the latter two.
const qMark = `SELECT partition, epoch, last_commit FROM partitions
	UNION ALL SELECT -1, count(*), CAST(COALESCE(sum(epoch), 0) AS BIGINT) FROM operations WHERE state IN ('running', 'paused', 'braked')
	UNION ALL SELECT -2, count(*), CAST(COALESCE(sum(revision % 1000003), 0) AS BIGINT) FROM (SELECT 0 AS revision FROM pauses UNION ALL SELECT revision FROM breakers UNION ALL SELECT revision FROM limits) AS held
	ORDER BY 1`

// Mark returns a text that changes with each commit of a partition, with each change of a running operation,
// a breaker or a limit, and with the number of pauses. A page compares it to find out whether to read again.
// Forgetting old rows does not change it.
func (a *asked) Mark(ctx context.Context) (string, error) {
	var mark strings.Builder
	for row := range each(a.of.query(ctx, qMark)) {
		var partition, epoch, commit int64
		if err := row.Scan(&partition, &epoch, &commit); err != nil {
			return "", fmt.Errorf("mark: %w", err)
		}
		fmt.Fprintf(&mark, "%d %d %d\n", partition, epoch, commit)
	}
	return mark.String(), nil
}
