// Package expected says when pending quota Workloads are expected to start.
package expected

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/tranche-dev/tranche/lifecycle/jobsetstatus"
	"github.com/tranche-dev/tranche/simulator"
)

// maxBlockers is how many holders of quota are named for each quota Workload.
const maxBlockers = 3

// WriteLeftOut prints a warning for each JobSet that is not simulated.
func WriteLeftOut(warnings io.Writer, p *simulator.Prediction) error {
	for _, left := range p.LeftOut {
		if _, err := fmt.Fprintf(warnings, "not simulated: %s %s: %s\n", left.Kind, left.Key, left.Why); err != nil {
			return fmt.Errorf("print what is not simulated: %w", err)
		}
	}
	return nil
}

// A Start is when a quota Workload is expected to start.
type Start struct {
	// Certainty is how sure that is: By, About or Unknown.
	Certainty simulator.Certainty `json:"certainty"`
	// By is the start if all stages run to their limits, and About if those without a limit take as long as earlier ones did.
	By    *time.Time `json:"by,omitempty"`
	About *time.Time `json:"about,omitempty"`
	// Text says the same, and where it comes from, or why the start is not known.
	Text string `json:"text"`
}

// Of returns an expected start of a prediction from a file. Its text counts the times from the snapshot on.
func Of(s *simulator.Start, p *simulator.Prediction) *Start {
	return of(s, p, func(t time.Time) string {
		return fmt.Sprintf("%s (%s after the snapshot)", timeText(t), duration.HumanDuration(t.Sub(p.TakenAt)))
	})
}

// Now returns an expected start of a prediction that is made again and again. Its text stays the same while the start does.
func Now(s *simulator.Start, p *simulator.Prediction) *Start { return of(s, p, timeText) }

// Written returns an expected start that the manager has written to a JobSet.
func Written(e *jobsetstatus.ExpectedStart) *Start {
	s := &Start{Certainty: simulator.Unknown, By: known(e.By), About: known(e.About)}
	about := "about " + timeText(e.About)
	if e.Basis != "" {
		about += ", " + e.Basis
	}
	switch e.Certainty {
	case jobsetstatus.StartBy:
		s.Certainty, s.Text = simulator.By, "by "+timeText(e.By)
		if !e.About.IsZero() {
			s.Text = fmt.Sprintf("%s; by %s if all run to their limits", about, timeText(e.By))
		}
	case jobsetstatus.StartAbout:
		s.Certainty, s.Text = simulator.About, about
	case jobsetstatus.StartUnknown:
		s.Text = "unknown: " + e.Basis
	case jobsetstatus.StartNotPredicted:
		s.Text = "not predicted: " + e.Basis
	}
	return s
}

func known(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return new(t.UTC())
}

func timeText(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }

func of(s *simulator.Start, p *simulator.Prediction, at func(time.Time) string) *Start {
	return &Start{Certainty: s.Certainty(), By: known(s.By), About: known(s.About), Text: text(s, p, at)}
}

// text returns when a quota Workload is expected to start and how sure that is, or why that is not known.
func text(s *simulator.Start, p *simulator.Prediction, at func(time.Time) string) string {
	about := ""
	if basis := s.Basis.String(); basis != "" && !s.About.IsZero() {
		about = fmt.Sprintf("about %s, %s", at(s.About), basis)
	}
	switch s.Certainty() {
	case simulator.By:
		if about != "" && s.About.Before(s.By) {
			return fmt.Sprintf("%s; by %s if all run to their limits", about, at(s.By))
		}
		return "by " + at(s.By)
	case simulator.About:
		return cmp.Or(about, "about "+at(s.About))
	case simulator.Unknown:
	}
	if p.Interrupted != nil {
		return "not predicted: " + p.Interrupted.Error()
	}
	var names []string
	for _, b := range s.Blockers[:min(len(s.Blockers), maxBlockers)] {
		names = append(names, b.String())
	}
	if more := len(s.Blockers) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	switch {
	case len(names) > 0:
		return "unknown: no maximum execution time: " + strings.Join(names, ", ")
	case s.Waits != "":
		return "unknown: " + s.Waits
	}
	return fmt.Sprintf("not within %s", duration.HumanDuration(p.Until.Sub(p.TakenAt)))
}
