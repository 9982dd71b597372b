package simulator_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/tranche-dev/tranche/simulator"
	"github.com/tranche-dev/tranche/simulator/unblock"
)

// TestStudiesAgree compares a Study with an Inspection, a prediction and a Laboratory that each read the snapshot.
func TestStudiesAgree(t *testing.T) {
	shared := 0
	rapid.Check(t, func(t *rapid.T) {
		text := crowdedLines(t)
		if rapid.Bool().Draw(t, "anything") {
			text = strings.Join(slices.DeleteFunc(randomLines(t), func(line string) bool { return strings.HasPrefix(line, "fail-write") }), "")
		}
		p, err := simulator.Pause(text, time.Duration(rapid.IntRange(0, 1500).Draw(t, "snapshot"))*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		pending := p.Pending()
		if len(pending) == 0 {
			return
		}
		d := &simulator.Durations{}
		if rapid.Bool().Draw(t, "estimates") {
			d.Estimates = []simulator.Estimate{{Run: 7 * time.Minute, Ready: 30 * time.Second}}
		}
		first := rapid.IntRange(0, len(pending)-1).Draw(t, "first")
		keys := pending[first:min(len(pending), first+rapid.IntRange(1, 3).Draw(t, "count"))]
		study, err := simulator.NewStudy(p.Taken, d, keys...)
		if err != nil {
			t.Fatal(err)
		}
		if study.IsShared() {
			shared++
		}
		inspection, err := simulator.Inspect(p.Taken, keys...)
		if err != nil {
			t.Fatal(err)
		}
		until := p.Taken.TakenAt.Add(24 * time.Hour)
		got, gotErr := study.Forecast(until)
		want, wantErr := simulator.ForecastOf(p.Taken, d, until, keys...)
		if fmt.Sprint(gotErr) != fmt.Sprint(wantErr) {
			t.Fatalf("%v, want %v\n%s", gotErr, wantErr, text)
		}
		agree := func(what string, want, got any) {
			if diff := gocmp.Diff(want, got, cmpopts.EquateErrors(), cmpopts.IgnoreUnexported(unblock.Set{})); diff != "" {
				t.Fatalf("%s of %v: -want +got\n%s\n%s", what, keys, diff, text)
			}
		}
		agree("predictions", want, got)
		for _, key := range keys {
			wantWhy, wantIs := inspection.Why(key)
			gotWhy, gotIs := study.Why(key)
			agree("queued", wantIs, gotIs)
			agree("reasons", wantWhy, gotWhy)
			wantSets, err := unblock.Find(simulator.NewLaboratory(p.Taken, d, key))
			if err != nil {
				t.Fatal(err)
			}
			gotSets, err := unblock.Find(study.Laboratory(key))
			if err != nil {
				t.Fatal(err)
			}
			agree("sets", wantSets, gotSets)
		}
	})
	if shared < 20 {
		t.Errorf("%d studies were shared", shared)
	}
}
