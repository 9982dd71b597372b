package podgroup

import "strings"

func splitGates(value string) []string {
	return strings.FieldsFunc(value, func(r rune) bool { return r == ',' || r == ' ' })
}

func joinGates(gates []string) string { return strings.Join(gates, ",") }
