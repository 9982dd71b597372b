package scenario

import (
	"slices"
	"strings"
)

// Diff shows two goldens line by line: what is only in the first begins with -, what is only in the second with +, and what is in
// both with a blank. It is empty if they are the same.
func Diff(want, got string) string {
	if want == got {
		return ""
	}
	a, b := strings.Split(strings.TrimSuffix(want, "\n"), "\n"), strings.Split(strings.TrimSuffix(got, "\n"), "\n")
	// longest[i][k] is the length of the longest common subsequence of a[i:] and b[k:].
	longest := make([][]int, len(a)+1)
	for i := range longest {
		longest[i] = make([]int, len(b)+1)
	}
	for i := range slices.Backward(a) {
		for k := range slices.Backward(b) {
			if a[i] == b[k] {
				longest[i][k] = longest[i+1][k+1] + 1
			} else {
				longest[i][k] = max(longest[i+1][k], longest[i][k+1])
			}
		}
	}
	var diff strings.Builder
	i, k := 0, 0
	for i < len(a) || k < len(b) {
		switch {
		case i < len(a) && k < len(b) && a[i] == b[k]:
			diff.WriteString("  " + a[i] + "\n")
			i, k = i+1, k+1
		case k == len(b) || i < len(a) && longest[i+1][k] >= longest[i][k+1]:
			diff.WriteString("- " + a[i] + "\n")
			i++
		default:
			diff.WriteString("+ " + b[k] + "\n")
			k++
		}
	}
	return diff.String()
}
