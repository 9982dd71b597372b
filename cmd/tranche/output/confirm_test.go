package output_test

import (
	"io"
	"strings"
	"testing"

	"github.com/tranche-dev/tranche/cmd/tranche/output"
)

func TestConfirm(t *testing.T) {
	for answer, want := range map[string]bool{"y\n": true, "Yes\n": true, "y": true, "": false, "\n": false, "n\n": false} {
		if err := output.Confirm(strings.NewReader(answer), io.Discard); (err == nil) != want {
			t.Errorf("%q: %v, want confirmed %t", answer, err, want)
		}
	}
}
