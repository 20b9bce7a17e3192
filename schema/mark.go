package schema

import (
	"context"
	"fmt"
	"strings"
)

// qMark has a row for each partition, with what its newest commit was, and one for the operations that are under way, whose
// every write raises an epoch.
const qMark = `SELECT partition, epoch, last_commit FROM partitions
	UNION ALL SELECT -1, count(*), CAST(COALESCE(sum(epoch), 0) AS BIGINT) FROM operations WHERE state IN ('running', 'paused', 'braked') ORDER BY 1`

// Mark is a text that is another one after each commit of a partition, and after each change of an operation that is under
// way. Rows that are forgotten, and what operators change besides, leave it as it is.
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
