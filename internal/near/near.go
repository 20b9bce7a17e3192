// Package near says how far one name is from another, for errors that guess what was meant.
package near

import "strings"

// Nearest is the known name that was meant by another, which is not much longer; empty: none is near.
func Nearest(name string, known []string) string {
	if len(name) > 40 {
		return ""
	}
	best, least := "", 3
	for _, k := range known {
		if d := Distance(strings.ToLower(name), k); d < least {
			best, least = k, d
		}
	}
	if best != "" && least*2 <= len(name) {
		return best
	}
	return begun(name, known)
}

// Ask asks for the known name that was meant by another, where there is one.
func Ask(name string, known []string) string {
	if meant := Nearest(name, known); meant != "" {
		return ": is " + meant + " meant?"
	}
	return ""
}

// begun is the one known name that goes on behind another, as attempts_max behind attempts; empty: none does, or several.
func begun(name string, known []string) string {
	only := ""
	for _, k := range known {
		if strings.HasPrefix(k, strings.ToLower(name)+"_") {
			if only != "" {
				return ""
			}
			only = k
		}
	}
	return only
}

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
