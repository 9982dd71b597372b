package scenario

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// reader interprets the lines of one scenario.
type reader struct {
	problems    []error
	config      *Config
	submissions map[string]*Submission
	// declared has the line in which an object was declared.
	declared map[string]int
	// line is the number of the line that is read.
	line int
	// now is the time up to which the earlier lines have been run; ended is true if they have been run to the end.
	now   time.Duration
	ended bool
	begun bool
}

// words are those of one line after its verb.
type words struct {
	verb   *Verb
	args   []string
	fields Fields
}

func (r *reader) complain(line int, err error) {
	r.problems = append(r.problems, &Error{Line: line, Err: err})
}

// read interprets a line.
func (r *reader) read(line *Line) error {
	verbs := Verbs()
	known := make([]string, len(verbs))
	for i := range verbs {
		known[i] = verbs[i].Name()
	}
	i := slices.Index(known, line.Words[0])
	if i < 0 {
		return fmt.Errorf("%q is no verb: write one of %s", line.Words[0], strings.Join(known, ", "))
	}
	r.line = line.Number
	w := &words{verb: &verbs[i]}
	if err := w.sort(line.Words[1:]); err != nil {
		return err
	}
	var err error
	if line.At, err = r.time(w); err != nil {
		return err
	}
	line.Statement, err = r.statement(w)
	r.begun = r.begun || w.verb.Name() != "config"
	if err != nil {
		return fmt.Errorf("%s: %w", strings.Join(line.Words[:1+len(w.args)], " "), err)
	}
	return nil
}

// statement returns the meaning of a line.
func (r *reader) statement(w *words) (Statement, error) {
	if w.verb.withoutFields != "" && len(w.fields) == 0 {
		return nil, errors.New(w.verb.withoutFields)
	}
	if !w.verb.readsFields {
		if err := w.fields.set(w.verb.Options); err != nil {
			return nil, err
		}
	}
	return w.verb.read(r, w)
}

// sort separates names from fields, and checks that there are as many names as in the usage.
func (w *words) sort(all []string) error {
	for _, word := range all {
		key, value, isField := strings.Cut(word, "=")
		switch {
		case isField && slices.ContainsFunc(w.fields, func(f Field) bool { return f.Key == key }):
			return fmt.Errorf("%s: %s is there twice", w.verb.Name(), key)
		case isField && (key == "" || value == ""):
			return fmt.Errorf("%s: %q must be KEY=VALUE, without blanks", w.verb.Name(), word)
		case isField:
			w.fields = append(w.fields, Field{key, value})
		case len(w.fields) > 0:
			return fmt.Errorf("%s: %q must be KEY=VALUE, or stand before the fields", w.verb.Name(), word)
		default:
			w.args = append(w.args, word)
		}
	}
	usage := strings.Fields(w.verb.Usage)[1:]
	most, least := len(usage), 0
	for _, u := range usage {
		if !strings.HasPrefix(u, "[") {
			least++
		}
	}
	if len(w.args) < least || len(w.args) > most {
		return fmt.Errorf("write %s, then fields KEY=VALUE", w.verb.Usage)
	}
	return nil
}

// time removes the field at from the fields and returns its value.
func (r *reader) time(w *words) (time.Duration, error) {
	i := slices.IndexFunc(w.fields, func(f Field) bool { return f.Key == "at" })
	if i < 0 || w.verb.Untimed {
		return r.now, nil
	}
	at, err := duration(w.fields[i].Value)
	switch {
	case err != nil:
		return 0, fmt.Errorf("%s: at: %w", w.verb.Name(), err)
	case r.ended:
		return 0, fmt.Errorf("%s: at: the run line above goes on until nothing is left to come: write until=TIME there", w.verb.Name())
	case at < r.now:
		return 0, fmt.Errorf("%s: at=%v has passed: a run line above goes on until %v", w.verb.Name(), at, r.now)
	}
	w.fields = slices.Delete(slices.Clone(w.fields), i, i+1)
	return at, nil
}

// target reads NAME, NAME/PART or NAME/STAGE+NUMBER of a job that is submitted above.
func (r *reader) target(text string) (Target, error) {
	name, part, hasPart := strings.Cut(text, "/")
	part, number, isGrowth := strings.Cut(part, "+")
	s := r.submissions[name]
	switch {
	case s == nil:
		return Target{}, fmt.Errorf("%q is not submitted above", name)
	case !hasPart:
	case !s.IsJobSet:
		return Target{}, fmt.Errorf("%q has no stages: name it alone", name)
	case !s.has(part):
		return Target{}, fmt.Errorf("%q has no stage or ReplicatedJob %q", name, part)
	case isGrowth:
		growth, err := count(number)
		if err != nil || growth == 0 || !s.hasStage(part) {
			return Target{}, fmt.Errorf("%q names no growth: write NAME/STAGE+NUMBER, such as a/train+1", text)
		}
		return Target{Namespace: s.Namespace, Name: name, Part: part, Growth: int(growth)}, nil
	}
	return Target{Namespace: s.Namespace, Name: name, Part: part}, nil
}

// read reads NAME FIELDS... of a line that makes an object.
func (d declaration) read(r *reader, w *words) (Statement, error) {
	name := w.args[0]
	if err := checkName(name); err != nil {
		return nil, err
	}
	// LocalQueues of the same name may be in several namespaces.
	key := string(d.kind) + " " + name + " " + w.fields.Get("namespace", "")
	if before := r.declared[key]; before > 0 {
		return nil, fmt.Errorf("is declared in line %d: write change %s %s to change it later", before, d.kind, name)
	}
	r.declared[key] = r.line
	if d.kind == LocalQueue && w.fields.Get("queue", "") == "" {
		return nil, errors.New("leads nowhere: write queue=NAME of its ClusterQueue")
	}
	return Declare{d.kind, name, w.fields}, w.fields.Apply(d.empty)
}

// object reads KIND NAME.
func (w *words) object() (declaration, error) {
	all := declarations()
	kinds := make([]string, len(all))
	for i := range all {
		kinds[i] = string(all[i].kind)
	}
	kind, err := oneOf[string](w.args[0], strings.Join(kinds, "|"))
	if err != nil {
		return declaration{}, err
	}
	return all[slices.Index(kinds, kind)], checkName(w.args[1])
}

func readChange(_ *reader, w *words) (Statement, error) {
	d, err := w.object()
	switch {
	case err != nil:
		return nil, err
	case d.kind == Queue && w.fields.Get("namespace", "") != "":
		return nil, errors.New("namespace: a LocalQueue cannot move; declare another with localqueue")
	}
	return Change{d.kind, w.args[1], w.fields}, w.fields.Apply(d.empty)
}

func readRemove(r *reader, w *words) (Statement, error) {
	d, err := w.object()
	if err != nil {
		return nil, err
	}
	// It may be declared again.
	maps.DeleteFunc(r.declared, func(key string, _ int) bool { return strings.HasPrefix(key, string(d.kind)+" "+w.args[1]+" ") })
	return Remove{d.kind, w.args[1]}, nil
}

// readSubmit completes the submission, whose fields are set.
func readSubmit(s *Submission) func(*reader, *words) (Statement, error) {
	return func(r *reader, w *words) (Statement, error) {
		s.Name = w.args[0]
		if err := checkName(s.Name); err != nil {
			return nil, err
		}
		if r.submissions[s.Name] != nil {
			return nil, errors.New("is submitted above: take another name")
		}
		if err := s.complete(); err != nil {
			return nil, err
		}
		r.submissions[s.Name] = s
		return Submit{s}, nil
	}
}

// A readTarget interprets a line about a job that is submitted above, or about a part of it.
type readTarget func(w *words, s *Submission, t Target) (Statement, error)

// concerns reads a target and passes it on.
func concerns(read readTarget) func(*reader, *words) (Statement, error) {
	return func(r *reader, w *words) (Statement, error) {
		target, err := r.target(w.args[0])
		if err != nil {
			return nil, err
		}
		return read(w, r.submissions[target.Name], target)
	}
}

func acts(action Action) readTarget {
	return func(_ *words, s *Submission, target Target) (Statement, error) {
		switch {
		case target.Part != "" && !action.takesPart():
			return nil, fmt.Errorf("concerns the whole job: write %s %s", action, target.Name)
		case target.Growth > 0 && action != Evict:
			return nil, fmt.Errorf("is only a quota Workload: write %s %s/%s for the pods of the stage", action, target.Name, target.Part)
		case !s.IsJobSet && !s.IsQueued && (action == Suspend || action == Resume):
			return nil, errors.New("is for JobSets and Jobs: write stages instead of pods, or add kind=Job")
		case !s.IsJobSet && action == Checkpoint:
			return nil, errors.New("is for JobSets: write stages instead of pods")
		}
		return Act{action, target}, nil
	}
}

// resizes reads the target of a change to this number of pods.
func resizes(pods *int32) readTarget {
	return func(_ *words, s *Submission, target Target) (Statement, error) {
		jobs := s.jobsOf(target.Part)
		switch {
		case !s.IsJobSet && !s.IsElastic:
			return nil, errors.New("is for JobSets and elastic Jobs: write stages instead of pods, or add kind=ElasticJob")
		case len(jobs) != 1 || target.Growth > 0:
			return nil, fmt.Errorf("one ReplicatedJob has another number of pods: write resize %s/JOB with one of %s", target.Name, strings.Join(s.jobsOf(""), ", "))
		case *pods == 0:
			return nil, errors.New("does not say how many pods, at least 1: write pods=COUNT")
		}
		_, err := s.Resized(jobs[0], *pods)
		return Resize{Target{Namespace: target.Namespace, Name: target.Name, Part: jobs[0]}, *pods}, err
	}
}

func readCheck(w *words, _ *Submission, target Target) (Statement, error) {
	check := Check{Target: target}
	for _, f := range w.fields {
		if err := checkName(f.Key); err != nil {
			return nil, err
		}
		state, err := checkState(f.Key, f.Value)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Key, err)
		}
		check.States = append(check.States, state)
	}
	return check, nil
}

// checkState reads the state of a check, such as Ready or Retry/after=5m.
func checkState(check, value string) (CheckState, error) {
	word, after, isPutOff := strings.Cut(value, "/after=")
	state, err := oneOf[kueue.CheckState](word, "Pending|Ready|Retry|Rejected")
	if err != nil || !isPutOff {
		return CheckState{Check: check, State: state}, err
	}
	if state != kueue.CheckStateRetry {
		return CheckState{}, fmt.Errorf("%q: only Retry can have /after=TIME", value)
	}
	pause, err := seconds(after)
	return CheckState{check, state, pause}, err
}

func readSet(w *words, s *Submission, target Target) (Statement, error) {
	switch {
	case (s.IsJobSet || s.IsQueued) && w.fields.Get("reclaim", "") != "":
		return nil, errors.New("reclaim: is for jobs of another kind: of JobSets and Jobs the pods are counted that have succeeded")
	case target.Growth > 0 && w.fields.Get("gates", "") != "":
		return nil, errors.New("gates: a growth has those of its stage")
	}
	return Set{target, w.fields}, nil
}

func readConfig(r *reader, w *words) (Statement, error) {
	if r.begun {
		return nil, errors.New("comes too late: configure the engine before anything else")
	}
	known := Settings()
	for _, f := range w.fields {
		if !slices.Contains(known, f.Key) {
			return nil, fmt.Errorf("%q is no setting of this engine: write one of %s", f.Key, strings.Join(known, ", "))
		}
	}
	return nil, w.fields.set(settings(r.config))
}

// readRun lets the time of the lines below begin where the run ends.
func readRun(run *Run) func(*reader, *words) (Statement, error) {
	return func(r *reader, _ *words) (Statement, error) {
		switch {
		case run.ToTheEnd:
			r.ended = true
		case r.ended:
			return nil, errors.New("until: the run line above goes on until nothing is left to come: write until=TIME there, too")
		case run.Until < r.now:
			return nil, fmt.Errorf("until=%v has passed: a run line above goes on until %v", run.Until, r.now)
		default:
			r.now = run.Until
		}
		return *run, nil
	}
}
