// Package near says how far one name is from another, for errors that guess what was meant.
package near

// Distance is how many bytes have to be put in, left out or replaced to make one text of another.
func Distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		corner := row[0]
		row[0] = i + 1
		for j := range len(b) {
			other := corner
			if a[i] != b[j] {
				other++
			}
			corner = row[j+1]
			row[j+1] = min(other, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
