package dashboard

import (
	"strings"
	"time"

	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstatus"
)

// A StartAnswer is when a stage is expected to start, as the manager has written it to the JobSet.
type StartAnswer struct {
	// Certainty is By, About, Unknown or NotPredicted. Only the first two have times.
	Certainty jobsetstatus.Certainty `json:"certainty"`
	// By is the start if all stages run to their limits, and About the one that follows from earlier runs. Either may be missing.
	By    time.Time `json:"by,omitzero"`
	About time.Time `json:"about,omitzero"`
	// Basis is on which runs About is based, or why the start is not known, and Computed when it was computed. Lists leave both out.
	Basis    string    `json:"basis,omitempty"`
	Computed time.Time `json:"computed,omitzero"`
}

// An expectedStart has the facts of a StartAnswer for lists, in few bytes: there may be one for each pending quota Workload.
type expectedStart struct {
	stage     string
	certainty jobsetstatus.Certainty
	// by and about are in seconds since 1970. Zero stands for none.
	by, about int64
}

// expectedStartOf returns the expected start of the first waiting stage of a JobSet, or nil if none is written.
func expectedStartOf(js *jobsetapi.JobSet) *expectedStart {
	written := jobsetstatus.ExpectedStartOf(js)
	if written == nil {
		return nil
	}
	// The certainty is a constant, and the stage a copy, so that no text of the JobSet stays in memory.
	e := &expectedStart{stage: strings.Clone(written.Stage), by: seconds(written.By), about: seconds(written.About)}
	for _, c := range []jobsetstatus.Certainty{jobsetstatus.StartBy, jobsetstatus.StartAbout, jobsetstatus.StartUnknown, jobsetstatus.StartNotPredicted} {
		if written.Certainty == c {
			e.certainty = c
		}
	}
	return e
}

func (e *expectedStart) answer() *StartAnswer {
	return &StartAnswer{Certainty: e.certainty, By: timeAt(e.by), About: timeAt(e.about)}
}

// startOf returns the expected start of a pending quota Workload, or nil if it is not of the stage about which the manager has written.
func startOf(w *workload) *StartAnswer {
	if w.state != Pending || w.owner == nil || w.owner.expected == nil || w.isGrowth || w.stage != "" && w.stage != w.owner.expected.stage {
		return nil
	}
	return w.owner.expected.answer()
}

func seconds(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.Unix()
}

func timeAt(seconds int64) time.Time {
	if seconds == 0 {
		return time.Time{}
	}
	return time.Unix(seconds, 0).UTC()
}
