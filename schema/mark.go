package schema

import (
	"context"
	"fmt"
	"strings"
)

// qMark has a row for each partition, with what its newest commit was, one for the operations that are under way, whose
// every write raises an epoch, and one for pauses, breakers and limits, of which those that change have revisions.
const qMark = `SELECT partition, epoch, last_commit FROM partitions
	UNION ALL SELECT -1, count(*), CAST(COALESCE(sum(epoch), 0) AS BIGINT) FROM operations WHERE state IN ('running', 'paused', 'braked')
	UNION ALL SELECT -2, count(*), CAST(COALESCE(sum(revision % 1000003), 0) AS BIGINT) FROM (SELECT 0 AS revision FROM pauses UNION ALL SELECT revision FROM breakers UNION ALL SELECT revision FROM limits) AS held
	ORDER BY 1`

// Mark is a text that is another one after each commit of a partition, and after each change of an operation that is under
// way, of a breaker or a limit, and of the number of pauses. Rows that are forgotten leave it as it is.
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
