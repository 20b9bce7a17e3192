// Package decimal compares the numbers of JSON by their values, exactly: no float stands in between.
package decimal

import (
	"fmt"
	"math/big"
	"strconv"
	"strings"
)

// Bounds of a number.
const (
	exponentMax = 400 // as it is written, and the power of ten of its first digit, up and down
	digitsMax   = 1000
	plainMax    = 40 // digits that are written without an exponent, zeros that only hold the place among them
)

// Canon is the one spelling of the value of a number of JSON, which is JSON as well: 1.50e1 is 15. A +, and no digit on one
// side of the point, are taken too. Error: it is none, or beyond the bounds.
func Canon(text string) (string, error) {
	unsigned, negative := strings.CutPrefix(strings.TrimPrefix(text, "+"), "-")
	mantissa, power := unsigned, "0"
	if i := strings.IndexAny(unsigned, "eE"); i >= 0 {
		mantissa, power = unsigned[:i], unsigned[i+1:]
	}
	whole, part, _ := strings.Cut(mantissa, ".")
	digits := whole + part
	exponent, err := strconv.ParseInt(power, 10, 32)
	if digits == "" || strings.Trim(digits, "0123456789") != "" || err != nil && !isDigits(power) {
		return "", fmt.Errorf("%.40s is no number", text)
	}
	point := len(whole) + int(exponent) // where it stands among the digits
	significant := strings.TrimLeft(digits, "0")
	point -= len(digits) - len(significant)
	if significant = strings.TrimRight(significant, "0"); significant == "" {
		return "0", nil
	}
	if err != nil || max(exponent, -exponent) > exponentMax || max(point-1, 1-point) > exponentMax || len(significant) > digitsMax {
		return "", fmt.Errorf("%.40s is out of range, want at most %d digits and an exponent of at most %d", text, digitsMax, exponentMax)
	}
	sign := ""
	if negative {
		sign = "-"
	}
	return sign + spell(significant, point), nil
}

// spell writes digits, which neither begin nor end with a zero, with the point behind so many of them.
func spell(digits string, point int) string {
	n := len(digits)
	switch {
	case point > 0 && point < n:
		return digits[:point] + "." + digits[point:]
	case point >= n && point <= plainMax:
		return digits + strings.Repeat("0", point-n)
	case point <= 0 && n-point <= plainMax:
		return "0." + strings.Repeat("0", -point) + digits
	case n > 1:
		digits = digits[:1] + "." + digits[1:]
	}
	return digits + "e" + strconv.Itoa(point-1)
}

func isDigits(power string) bool {
	power = strings.TrimLeft(power, "+-")
	return power != "" && strings.Trim(power, "0123456789") == ""
}

// Same reports whether two numbers have the same value. What is beyond the bounds is the same only as it is written.
func Same(a, b string) bool {
	x, err := Canon(a)
	if err != nil {
		return a == b
	}
	y, err := Canon(b)
	return err == nil && x == y
}

// Compare is -1 where a number is below another, 0 where they are the same, and 1. Both are within the bounds.
func Compare(a, b string) int {
	x, _ := new(big.Rat).SetString(a)
	y, _ := new(big.Rat).SetString(b)
	return x.Cmp(y)
}
