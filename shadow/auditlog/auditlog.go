// Package auditlog reads what happened in a cluster from an audit log of its API server: a file with one Event of audit.k8s.io/v1 in JSON per line. Events
// must have the objects: they are at level RequestResponse for JobSets, Jobs, quota Workloads and queues.
package auditlog

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/shadow"
	"github.com/tranche-dev/tranche/snapshot"
)

// maxLine is the greatest length of an event.
const maxLine = 64 << 20

// Policy is an audit policy that makes an API server log what this package reads.
const Policy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: RequestResponse
  verbs: [create, update, patch, delete, deletecollection, list]
  resources:
  - group: jobset.x-k8s.io
    resources: [jobsets, jobsets/status]
  - group: batch
    resources: [jobs, jobs/status]
  - group: kueue.x-k8s.io
    resources: [workloads, workloads/status, clusterqueues, cohorts, localqueues, resourceflavors, workloadpriorityclasses]
- level: None
`

// An event is the part of an Event that counts.
type event struct {
	Kind       string `json:"kind"`
	APIVersion string `json:"apiVersion"`
	Level      string `json:"level"`
	Stage      string `json:"stage"`
	Verb       string `json:"verb"`
	ObjectRef  *struct {
		Resource    string `json:"resource"`
		APIGroup    string `json:"apiGroup"`
		APIVersion  string `json:"apiVersion"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
		UID         string `json:"uid"`
		Subresource string `json:"subresource"`
	} `json:"objectRef"`
	ResponseStatus *struct {
		Code int32 `json:"code"`
	} `json:"responseStatus"`
	ResponseObject json.RawMessage  `json:"responseObject"`
	StageTimestamp metav1.MicroTime `json:"stageTimestamp"`
}

// A Content is what an audit log shows.
type Content struct {
	Recorder *shadow.Recorder
	// To is the time of the last event.
	To time.Time
	// Gaps are the resources whose objects the log lacks.
	Gaps []snapshot.Gap
}

// Read reads an audit log, compressed by gzip or not. Base has the objects that decide admission and that the log need not show; it may be nil. The name is
// for errors, and limit is that of the Recorder.
func Read(name string, log io.Reader, base *snapshot.Snapshot, limit int) (*Content, error) {
	in := bufio.NewReaderSize(log, 1<<20)
	if magic, _ := in.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		compressed, err := gzip.NewReader(in)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		in = bufio.NewReaderSize(compressed, 1<<20)
	}
	reading := &reading{base: base, limit: limit, levels: map[string]levels{}, gone: map[string]snapshot.Object{}}
	for number := 1; ; number++ {
		line, err := readLine(in)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("%s:%d: %w", name, number, err)
		}
		if len(bytes.TrimSpace(line)) > 0 {
			if wrong := reading.read(line); wrong != nil {
				return nil, fmt.Errorf("%s:%d: %w", name, number, wrong)
			}
		}
		if err != nil {
			break
		}
	}
	gaps, err := reading.gaps()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return &Content{Recorder: reading.recorder, To: reading.last, Gaps: gaps}, nil
}

// readLine returns the next line, and io.EOF with the last one.
func readLine(in *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		line = append(line, part...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
		if len(line) > maxLine {
			return nil, fmt.Errorf("the line is longer than %d bytes: an audit log has one event per line", maxLine)
		}
	}
}

// levels count the events of a resource that have objects, and those that lack them.
type levels struct {
	full, lacking int
	// lowest is the level of the first one that lacks them.
	lowest string
}

type reading struct {
	base     *snapshot.Snapshot
	limit    int
	recorder *shadow.Recorder
	last     time.Time
	levels   map[string]levels
	// gone has the last version of the objects that can be deleted, by resource and name, with their UIDs only.
	gone map[string]snapshot.Object
}

// read takes one line.
func (r *reading) read(line []byte) error {
	var e event
	if err := json.Unmarshal(line, &e); err != nil {
		return fmt.Errorf("not an audit event in JSON: %w; name a log that kube-apiserver wrote with --audit-log-format=json", err)
	}
	if e.Kind != "Event" || e.APIVersion != "audit.k8s.io/v1" {
		return fmt.Errorf("apiVersion %q and kind %q: an audit log has audit.k8s.io/v1 Event in each line", e.APIVersion, e.Kind)
	}
	if e.Stage != "ResponseComplete" || e.ObjectRef == nil || e.ResponseStatus == nil || e.ResponseStatus.Code >= 300 {
		return nil
	}
	kind := kindOf(&e)
	if kind == nil {
		return nil
	}
	if !slices.Contains([]string{"create", "update", "patch", "delete", "deletecollection", "list", "get"}, e.Verb) {
		return nil
	}
	isWrite := e.Verb != "list" && e.Verb != "get"
	if len(e.ResponseObject) == 0 || e.Level != "RequestResponse" {
		if isWrite {
			r.lacks(kind, e.Level)
		}
		return nil
	}
	if r.recorder == nil {
		r.recorder = shadow.NewRecorder(e.StageTimestamp.Time, r.base, r.limit)
	}
	r.last = later(r.last, e.StageTimestamp.Time)
	l := r.levels[kind.FullResource()]
	l.full++
	r.levels[kind.FullResource()] = l
	return r.apply(&e, kind)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func (r *reading) lacks(kind *snapshot.Kind, level string) {
	l := r.levels[kind.FullResource()]
	l.lacking++
	if l.lowest == "" {
		l.lowest = level
	}
	r.levels[kind.FullResource()] = l
}

// kindOf returns the kind of the object of an event if it counts. Objects of other versions of an API have other fields.
func kindOf(e *event) *snapshot.Kind {
	if e.ObjectRef.Subresource != "" && e.ObjectRef.Subresource != "status" {
		return nil
	}
	kind := snapshot.KindNamed(schema.GroupResource{Group: e.ObjectRef.APIGroup, Resource: e.ObjectRef.Resource})
	if kind == nil || kind.GVK.Version != e.ObjectRef.APIVersion || !slices.Contains(resources(), kind.FullResource()) {
		return nil
	}
	return kind
}

// resources are those whose events count.
func resources() []string {
	all := []string{"jobsets." + jobset.GroupVersion.Group, "jobs." + batchv1.GroupName}
	for _, name := range []string{"workloads", "clusterqueues", "cohorts", "localqueues", "resourceflavors", "workloadpriorityclasses", "admissionchecks"} {
		all = append(all, name+"."+kueue.SchemeGroupVersion.Group)
	}
	return all
}

// apply takes the objects of an event.
func (r *reading) apply(e *event, kind *snapshot.Kind) error {
	var about struct {
		Kind  string            `json:"kind"`
		Items []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(e.ResponseObject, &about); err != nil {
		return fmt.Errorf("responseObject: %w", err)
	}
	isDeletion := e.Verb == "delete" || e.Verb == "deletecollection"
	switch {
	case about.Kind == "Status":
		r.goneByName(e, kind)
		return nil
	case !strings.HasSuffix(about.Kind, "List"):
		return r.object(kind, e.ResponseObject, e.StageTimestamp.Time, isDeletion)
	}
	for _, item := range about.Items {
		if err := r.object(kind, item, e.StageTimestamp.Time, isDeletion); err != nil {
			return err
		}
	}
	return nil
}

func keyOf(kind *snapshot.Kind, namespace, name string) string {
	return kind.FullResource() + " " + namespace + "/" + name
}

// object takes an object. One that is deleted and has finalizers remains for a while.
func (r *reading) object(kind *snapshot.Kind, text json.RawMessage, at time.Time, isDeletion bool) error {
	object := snapshot.NewObject(kind)
	if err := json.Unmarshal(text, object); err != nil {
		return fmt.Errorf("%s in responseObject: %w", kind.GVK.Kind, err)
	}
	r.recorder.Observe(object, at)
	key := keyOf(kind, object.GetNamespace(), object.GetName())
	isGone := (isDeletion || object.GetDeletionTimestamp() != nil) && len(object.GetFinalizers()) == 0
	if isGone {
		r.recorder.Gone(object, at)
		delete(r.gone, key)
		return nil
	}
	named := snapshot.NewObject(kind)
	named.SetNamespace(object.GetNamespace())
	named.SetName(object.GetName())
	named.SetUID(object.GetUID())
	r.gone[key] = named
	return nil
}

// goneByName takes the deletion of an object that the event names, but does not have.
func (r *reading) goneByName(e *event, kind *snapshot.Kind) {
	key := keyOf(kind, e.ObjectRef.Namespace, e.ObjectRef.Name)
	if object := r.gone[key]; object != nil && e.Verb == "delete" {
		r.recorder.Gone(object, e.StageTimestamp.Time)
		delete(r.gone, key)
	}
}

// gaps returns the resources whose objects the log lacks. It is an error if JobSets or Jobs are among them.
func (r *reading) gaps() ([]snapshot.Gap, error) {
	var gaps []snapshot.Gap
	for _, resource := range resources() {
		if l := r.levels[resource]; l.lacking > 0 {
			gaps = append(gaps, snapshot.Gap{
				Resource: resource, Reason: fmt.Sprintf("%d of %d events have no object: their level is %s", l.lacking, l.lacking+l.full, l.lowest),
				Cure: "log them at level RequestResponse",
			})
		}
	}
	for _, needed := range resources()[:2] {
		if l := r.levels[needed]; l.full == 0 && l.lacking > 0 {
			return nil, fmt.Errorf("the events of %s are at level %s and have no objects: level RequestResponse is needed; this audit policy logs what is read:\n%s", needed, l.lowest, Policy)
		}
	}
	if r.recorder == nil {
		return nil, fmt.Errorf("no event has a JobSet, a Job, a quota Workload or a queue: log these at level RequestResponse; this audit policy does:\n%s", Policy)
	}
	return gaps, nil
}
