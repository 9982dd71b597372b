package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
)

// TestConfigWatch: the manager ends when it finds the same changed configuration twice, and not for one with which it would not start.
func TestConfigWatch(t *testing.T) {
	const header = "apiVersion: config.tranche.dev/v1alpha1\nkind: Configuration\n"
	for name, tc := range map[string]struct {
		// contents has what the file contains at each look.
		contents []string
		ends     bool
	}{
		"nothing changes":            {[]string{header, header + "# a comment\n", header}, false},
		"it changes":                 {[]string{header, header + "stageAdmission: Reserve\n", header + "stageAdmission: Reserve\n"}, true},
		"it is changed back":         {[]string{header + "stageAdmission: Reserve\n", header, header}, false},
		"it changes twice":           {[]string{header + "stageAdmission: Reserve\n", header + "stageAdmission: Greedy\n", header}, false},
		"it is invalid":              {[]string{header + "stageAdmission: Fast\n", header + "stageAdmission: Fast\n", header + "stageAdmission: Fast\n"}, false},
		"it contradicts the cluster": {[]string{header + "maxPodPriority: 7\n", header + "maxPodPriority: 7\n", header + "maxPodPriority: 7\n"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "config.yaml")
				write := func(content string) {
					if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				write(header)
				running, err := configapi.Load(path)
				if err != nil {
					t.Fatal(err)
				}
				w := &configWatch{path, running, func(_ context.Context, c *configapi.Configuration) error {
					if *c.MaxPodPriority == 7 {
						return errors.New("the cluster wants another one")
					}
					return nil
				}}
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- w.Start(ctx) }()
				for _, content := range tc.contents {
					write(content)
					time.Sleep(configInterval)
					synctest.Wait()
				}
				cancel()
				err = <-done
				if ended := err != nil && strings.Contains(err.Error(), "has changed"); ended != tc.ends {
					t.Errorf("ended with %v, want an end: %t", err, tc.ends)
				}
			})
		})
	}
}
