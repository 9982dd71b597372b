package jobsetstatus

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
)

// A Certainty is how sure an expected start is. It is the reason of the condition StartExpected.
type Certainty string

const (
	// StartBy is a start that follows from maximum execution times: stages may end earlier.
	StartBy Certainty = "By"
	// StartAbout is a start that also follows from how long earlier runs took.
	StartAbout Certainty = "About"
	// StartUnknown is no start, for the reason in the basis.
	StartUnknown Certainty = "Unknown"
	// StartNotPredicted is no start, because it was not computed.
	StartNotPredicted Certainty = "NotPredicted"
)

// An ExpectedStart is when the first waiting stage of a JobSet is expected to start. The condition StartExpected has it as text.
type ExpectedStart struct {
	Stage     string
	Certainty Certainty
	// By is the start if all stages run to their limits, and About if those of which earlier runs are known take as long as these. They are zero if
	// they are not known. Times are whole seconds in UTC.
	By, About time.Time
	// ClusterQueue is the queue in which the stage is pending, or empty, and Position counts the stages before it there.
	ClusterQueue string
	Position     int
	// Computed is when the start was computed. An answer that has hardly changed is not written again.
	Computed time.Time
	// Basis is on which runs About is based, or why the start is not known. It may be truncated.
	Basis string
}

// The message of the condition consists of these sentences, in this order. The last two may be missing, the last one is free text.
const (
	stagePart        = `Stage %s: `
	byPart           = "expected to start by "
	aboutPart        = "expected to start about "
	limitPart        = ", by "
	limitSuffix      = " if all run to their limits"
	unknownPart      = "start unknown"
	notPredictedPart = "start not predicted"
	computedPart     = "Computed at "
	positionPart     = "Position "
	queuePart        = " in ClusterQueue "
	queueSuffix      = " (0 is next)"
	basisPart        = "Basis: "
	sentenceEnd      = ". "
)

// Condition returns the condition StartExpected of a JobSet. It is true if the start is known.
func (e *ExpectedStart) Condition(js *jobsetapi.JobSet) metav1.Condition {
	c := metav1.Condition{Type: StartExpected, Status: metav1.ConditionUnknown, Reason: string(e.Certainty), Message: e.message()}
	if e.Certainty == StartBy || e.Certainty == StartAbout {
		c.Status = metav1.ConditionTrue
	}
	return timed(js, c)[0]
}

func (e *ExpectedStart) message() string {
	at := func(t time.Time) string { return t.UTC().Format(time.RFC3339) }
	start := ""
	switch {
	case e.Certainty == StartBy && !e.About.IsZero():
		start = aboutPart + at(e.About) + limitPart + at(e.By) + limitSuffix
	case e.Certainty == StartBy:
		start = byPart + at(e.By)
	case e.Certainty == StartAbout:
		start = aboutPart + at(e.About)
	case e.Certainty == StartUnknown:
		start = unknownPart
	default:
		start = notPredictedPart
	}
	sentences := []string{fmt.Sprintf(stagePart, strconv.Quote(e.Stage)) + start, computedPart + at(e.Computed)}
	if e.ClusterQueue != "" {
		sentences = append(sentences, positionPart+strconv.Itoa(e.Position)+queuePart+strconv.Quote(e.ClusterQueue)+queueSuffix)
	}
	if e.Basis != "" {
		sentences = append(sentences, basisPart+e.Basis)
	}
	return strings.Join(sentences, sentenceEnd)
}

// WithExpectedStart adds the condition StartExpected to those of a queued JobSet, if the answer is about its first waiting stage.
func WithExpectedStart(js *jobsetapi.JobSet, all []metav1.Condition, summary Summary, e *ExpectedStart) []metav1.Condition {
	if e == nil || e.Stage != summary.waitingStage() {
		return all
	}
	return append(all, e.Condition(js))
}

// waitingStage returns the name of the stage whose start is expected, or "" if no stage waits.
func (s *Summary) waitingStage() string {
	if waiting := s.firstWaiting(); waiting != nil && s.Failure == nil && !s.Over && !s.Suspended {
		return waiting.Name
	}
	return ""
}

// ExpectedStartOf returns when the first waiting stage of a JobSet is expected to start, as the manager has written it. It returns nil if no stage
// waits, the manager has not written it yet, or the condition is not one of the manager's.
func ExpectedStartOf(js *jobsetapi.JobSet) *ExpectedStart {
	c := apimeta.FindStatusCondition(js.Status.Conditions, StartExpected)
	if c == nil {
		return nil
	}
	e := &ExpectedStart{Certainty: Certainty(c.Reason)}
	first, rest, _ := strings.Cut(c.Message, sentenceEnd)
	if !e.readStart(first) {
		return nil
	}
	computed, rest, _ := strings.Cut(rest, sentenceEnd)
	if !readTime(computed, computedPart, &e.Computed) {
		return nil
	}
	if strings.HasPrefix(rest, positionPart) {
		position := ""
		position, rest, _ = strings.Cut(rest, sentenceEnd)
		if !e.readPosition(position) {
			return nil
		}
	}
	e.Basis = strings.TrimPrefix(rest, basisPart)
	return e
}

// readStart reads the sentence with the stage and its start. It reports whether that agrees with the certainty.
func (e *ExpectedStart) readStart(sentence string) bool {
	before, after, _ := strings.Cut(stagePart, "%s")
	rest, isStage := strings.CutPrefix(sentence, before)
	quoted, err := strconv.QuotedPrefix(rest)
	if !isStage || err != nil {
		return false
	}
	e.Stage, err = strconv.Unquote(quoted)
	start, isStart := strings.CutPrefix(rest[len(quoted):], after)
	if err != nil || !isStart {
		return false
	}
	switch e.Certainty {
	case StartBy:
		if about, by, hasBoth := strings.Cut(start, limitPart); hasBoth {
			by, isLimit := strings.CutSuffix(by, limitSuffix)
			return isLimit && readTime(about, aboutPart, &e.About) && readTime(by, "", &e.By)
		}
		return readTime(start, byPart, &e.By)
	case StartAbout:
		return readTime(start, aboutPart, &e.About)
	case StartUnknown:
		return start == unknownPart
	case StartNotPredicted:
		return start == notPredictedPart
	}
	return false
}

// readPosition reads the sentence with the position.
func (e *ExpectedStart) readPosition(sentence string) bool {
	position, queue, _ := strings.Cut(strings.TrimPrefix(sentence, positionPart), queuePart)
	queue, isQueue := strings.CutSuffix(queue, queueSuffix)
	var errs [2]error
	e.Position, errs[0] = strconv.Atoi(position)
	e.ClusterQueue, errs[1] = strconv.Unquote(queue)
	return isQueue && errs[0] == nil && errs[1] == nil && e.Position >= 0 && e.ClusterQueue != ""
}

// readTime reads a time behind a text.
func readTime(text, before string, t *time.Time) bool {
	value, is := strings.CutPrefix(text, before)
	read, err := time.Parse(time.RFC3339, value)
	*t = read.UTC()
	return is && err == nil
}

// Differs reports whether the answer differs so much from the one that is written on the JobSet that it is worth a write: in the stage, the
// queue, the certainty or the basis, by more than 10 % of the position, or by more than 10 % of the wait that the written answer still leaves when
// the new one is computed. How many earlier runs count makes no difference.
func (e *ExpectedStart) Differs(written *ExpectedStart) bool {
	return written == nil || e.Stage != written.Stage || e.ClusterQueue != written.ClusterQueue || e.Certainty != written.Certainty ||
		basisName(e.Basis) != basisName(written.Basis) || differsByATenth(e.Position, written.Position, written.Position) ||
		e.startDiffers(e.By, written.By) || e.startDiffers(e.About, written.About)
}

func (e *ExpectedStart) startDiffers(start, written time.Time) bool {
	if start.IsZero() || written.IsZero() {
		return start.IsZero() != written.IsZero()
	}
	return differsByATenth(start.Unix(), written.Unix(), max(0, written.Unix()-e.Computed.Unix()))
}

// differsByATenth reports whether two numbers differ by more than a tenth of a whole.
func differsByATenth[N int | int64](a, b, whole N) bool { return max(a-b, b-a) > whole/10 }

// basisName returns a basis without the number of runs.
func basisName(basis string) string {
	if runs, of, isHistory := strings.Cut(basis, " of "); isHistory && strings.HasPrefix(runs, "from the last ") {
		return of
	}
	return basis
}
