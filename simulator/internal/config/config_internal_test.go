package config

import (
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/simulator/scenario"
)

func TestConfigure(t *testing.T) {
	var c Config
	if err := Set(&c, []scenario.Field{{Key: "stage-admission", Value: "Greedy"}}); err != nil {
		t.Fatal(err)
	}
	if c.StageAdmission != admission.Greedy {
		t.Errorf("StageAdmission is %q", c.StageAdmission)
	}
}

// TestSettings finds and sets fields of every kind that a configuration may have.
func TestSettings(t *testing.T) {
	type inner struct {
		Timeout time.Duration
		Names   []string
	}
	type outer struct {
		FairSharing bool
		Limit       *int32
		Share       float64
		Wait        *inner
		hidden      string
	}
	o := outer{hidden: "x"}
	known := settings(reflect.TypeFor[outer](), "", func() reflect.Value { return reflect.ValueOf(&o).Elem() })
	if diff := cmp.Diff([]string{"fair-sharing", "limit", "share", "wait.names", "wait.timeout"}, slices.Sorted(maps.Keys(known))); diff != "" {
		t.Fatalf("settings: -want +got\n%s", diff)
	}
	if o.Wait != nil {
		t.Error("a struct is made before one of its fields is set")
	}
	for key, value := range map[string]string{
		"fair-sharing": "true", "limit": "7", "share": "0.5", "wait.timeout": "90s", "wait.names": "a,b",
	} {
		if err := assign(known[key](), value); err != nil {
			t.Errorf("%s: %v", key, err)
		}
	}
	if !o.FairSharing || *o.Limit != 7 || o.Share != 0.5 || o.Wait.Timeout != 90*time.Second || !slices.Equal(o.Wait.Names, []string{"a", "b"}) {
		t.Errorf("got %+v, limit %d, wait %+v", o, *o.Limit, *o.Wait)
	}
	for key, value := range map[string]string{"fair-sharing": "yes", "limit": "many", "share": "half", "wait.timeout": "5"} {
		if err := assign(known[key](), value); err == nil {
			t.Errorf("%s takes %q", key, value)
		}
	}
}
