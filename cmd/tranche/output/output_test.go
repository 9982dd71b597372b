package output_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tranche-dev/tranche/cmd/tranche/exitcode"
	"github.com/tranche-dev/tranche/cmd/tranche/output"
)

// Lines are broken at spaces, and the rest is indented further. A word that is too long stays whole.
func TestWrap(t *testing.T) {
	name := strings.Repeat("n", 130)
	long := "  1. raise nominalQuota of nvidia.com/gpu of flavor a100 in ClusterQueue research by 12 cpus – from 4 to 16 at least 1 x"
	for text, want := range map[string]string{
		"":                     "",
		"no end":               "no end",
		"  short\n\nnext\n":    "  short\n\nnext\n",
		long + "\n":            long + "\n", // has 120 columns
		long + "y, and more\n": strings.TrimSuffix(long, " x") + "\n      xy, and more\n",
		"a " + name + " b\n":   "a\n    " + name + "\n    b\n",
	} {
		if got := output.Wrap(text); got != want {
			t.Errorf("%q is wrapped as\n%s\nwant\n%s", text, got, want)
		}
	}
}

func TestFormat(t *testing.T) {
	object := map[string]any{"name": "a < b", "items": []int{1}}
	for args, want := range map[string]string{
		"-o json": "{\n  \"items\": [\n    1\n  ],\n  \"name\": \"a < b\"\n}\n",
		"-o yaml": "items:\n- 1\nname: a < b\n",
	} {
		f := parse(t, args)
		var out bytes.Buffer
		if err := f.Write(&out, object); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, out.String()); diff != "" || f.IsText() {
			t.Errorf("%s is text: %t\n%s", args, f.IsText(), diff)
		}
	}
	for _, args := range []string{"", "-o text"} {
		if f := parse(t, args); !f.IsText() {
			t.Errorf("with the flag %q the format is %q", args, f)
		}
	}
}

func TestUnknownFormat(t *testing.T) {
	var f output.Format
	cmd := &cobra.Command{}
	f.Add(cmd, output.JSON, output.YAML)
	err := cmd.ParseFlags([]string{"-o", "wide"})
	if err == nil || !strings.HasSuffix(err.Error(), "must be one of text, json, yaml") {
		t.Errorf("the error is %v", err)
	}
}

func parse(t *testing.T, args string) output.Format {
	t.Helper()
	var f output.Format
	cmd := &cobra.Command{}
	f.Add(cmd, output.JSON, output.YAML)
	if err := cmd.ParseFlags(strings.Fields(args)); err != nil {
		t.Fatal(err)
	}
	return f
}

// TestRepeat asks every 5 seconds. An answer that has not changed is not printed again, and an error does not end the watch.
func TestRepeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		failure := errors.New("connection refused")
		answers := []struct {
			text string
			err  error
		}{{"a", nil}, {"a", nil}, {"", failure}, {"", failure}, {"b", nil}, {"", failure}}
		asked := 0
		var printed []string
		var warnings bytes.Buffer
		begin := time.Now()
		err := output.Repeat(ctx, &output.Watch{IsOn: true, Interval: 5 * time.Second}, &warnings,
			func(context.Context) (string, error) {
				answer := answers[asked]
				if asked++; asked == len(answers) {
					cancel()
				}
				return answer.text, answer.err
			},
			func(text string) error { printed = append(printed, text); return nil })
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"a", "b"}, printed); diff != "" {
			t.Error(diff)
		}
		if want := "tranche: connection refused\n"; warnings.String() != want+want {
			t.Errorf("warnings:\n%s", warnings.String())
		}
		if took := time.Since(begin); took != 25*time.Second {
			t.Errorf("6 questions took %s, want 25s", took)
		}
	})
}

// TestRepeatWithTimes compares answers with times and quantities, whose fields do not compare.
func TestRepeatWithTimes(t *testing.T) {
	type answer struct {
		At      time.Time
		Amount  resource.Quantity
		derived string
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		answers := []answer{{at, resource.MustParse("1"), "a"}, {at, resource.MustParse("1000m"), "a"}, {at.Add(time.Second), resource.MustParse("1"), "b"}}
		asked := 0
		var printed []string
		err := output.Repeat(ctx, &output.Watch{IsOn: true, Interval: time.Second}, io.Discard, func(context.Context) (answer, error) {
			if asked++; asked == len(answers) {
				cancel()
			}
			return answers[asked-1], nil
		}, func(a answer) error { printed = append(printed, a.derived); return nil })
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"a", "b"}, printed); diff != "" {
			t.Error(diff)
		}
	})
}

func TestFirstErrorEnds(t *testing.T) {
	failure := errors.New("forbidden")
	ask := func(context.Context) (int, error) { return 0, failure }
	show := func(int) error { t.Error("printed"); return nil }
	if err := output.Repeat(t.Context(), &output.Watch{IsOn: true, Interval: time.Second}, nil, ask, show); !errors.Is(err, failure) {
		t.Errorf("the error is %v", err)
	}
	err := output.Repeat(t.Context(), &output.Watch{IsOn: true, Interval: time.Millisecond}, nil, ask, show)
	if err == nil || exitcode.Of(err) != exitcode.BadInput {
		t.Errorf("too short an interval: %v", err)
	}
}
