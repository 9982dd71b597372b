package snapshot

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
)

// batchBytes is about how much JSON one goroutine decodes at a time.
const batchBytes = 1 << 20

// A batch has JSON objects of one kind that follow each other in a file.
type batch struct {
	kind *Kind
	// placeOf returns the place of an object, for errors.
	placeOf func(i int) string
	raw     [][]byte
	// interner lets objects share parts. It may be nil.
	interner *interner

	objects []Object
	err     error
}

// A decoder decodes batches concurrently, and keeps their order.
type decoder struct {
	batches []*batch
	// interner is that of the lines of a snapshot. Manifests share nothing.
	interner interner
	pending  chan *batch
	workers  sync.WaitGroup
}

func newDecoder() *decoder {
	d := &decoder{pending: make(chan *batch)}
	for range runtime.GOMAXPROCS(0) {
		d.workers.Go(func() {
			for b := range d.pending {
				b.decode()
			}
		})
	}
	return d
}

func (d *decoder) add(b *batch) {
	d.batches = append(d.batches, b)
	d.pending <- b
}

// finish waits for all batches, adds the objects to the snapshot and sorts them.
func (d *decoder) finish(s *Snapshot) error {
	d.stop()
	return d.collect(s)
}

// collect does so after all batches were decoded.
func (d *decoder) collect(s *Snapshot) error {
	for _, b := range d.batches {
		if b.err != nil {
			return b.err
		}
		for _, object := range b.objects {
			b.kind.add(s, object)
		}
	}
	for _, kind := range Kinds() {
		kind.sort(s)
		var previous Object
		for object := range kind.all(s) {
			if previous != nil && compareNames(previous, object) == 0 {
				return d.twice(kind, object)
			}
			previous = object
		}
	}
	return nil
}

func (d *decoder) stop() {
	close(d.pending)
	d.workers.Wait()
}

// damage returns why an object of a kind cannot be decoded, or nil.
func (d *decoder) damage(kind *Kind) error {
	for _, b := range d.batches {
		if kind != nil && b.kind.GVK == kind.GVK && b.err != nil {
			return b.err
		}
	}
	return nil
}

// drop removes the objects of a kind.
func (d *decoder) drop(kind *Kind) {
	d.batches = slices.DeleteFunc(d.batches, func(b *batch) bool { return b.kind.GVK == kind.GVK })
}

// twice returns the error of an object that exists more than once.
func (d *decoder) twice(kind *Kind, object Object) error {
	var places []string
	for _, b := range d.batches {
		for i, other := range b.objects {
			if b.kind.GVK == kind.GVK && compareNames(object, other) == 0 {
				places = append(places, b.placeOf(i))
			}
		}
	}
	return fmt.Errorf("%s %s is given twice, in %s and in %s: remove one of them", kind.GVK.Kind, nameOf(object), places[0], places[1])
}

func (b *batch) decode() {
	b.objects = make([]Object, 0, len(b.raw))
	for i, raw := range b.raw {
		object, err := b.decodeOne(raw)
		if err != nil {
			b.err = fmt.Errorf("%s: %w", b.placeOf(i), err)
			return
		}
		b.objects = append(b.objects, object)
	}
	b.raw = nil
}

// decodeOne decodes an object, which may share parts with others.
func (b *batch) decodeOne(raw []byte) (Object, error) {
	if b.interner != nil {
		if object, ok := b.interner.decode(b.kind, raw); ok {
			return b.kind.complete(object, raw)
		}
	}
	object := b.kind.new()
	if err := json.Unmarshal(raw, object); err != nil {
		return nil, fmt.Errorf("decode %s: %w", b.kind.GVK.Kind, err)
	}
	return b.kind.complete(object, raw)
}

// complete checks an object that was decoded, and sets its defaults.
func (k *Kind) complete(object Object, raw []byte) (Object, error) {
	if gvk := object.GetObjectKind().GroupVersionKind(); gvk != k.GVK && gvk != (schema.GroupVersionKind{}) {
		return nil, fmt.Errorf("the object is a %s of %s, must be a %s of %s", gvk.Kind, gvk.GroupVersion(), k.GVK.Kind, k.GVK.GroupVersion())
	}
	object.GetObjectKind().SetGroupVersionKind(k.GVK)
	if !k.IsNamespaced {
		object.SetNamespace("") // as the API server does
	}
	if js, isJobSet := object.(*jobsetapi.JobSet); isJobSet {
		setReplicas(js, raw)
	}
	switch {
	case object.GetName() == "":
		return nil, fmt.Errorf("a %s has no metadata.name", k.GVK.Kind)
	case k.IsNamespaced && object.GetNamespace() == "":
		return nil, fmt.Errorf("%s %s has no metadata.namespace: write it", k.GVK.Kind, object.GetName())
	}
	return object, nil
}

// setReplicas sets the default of replicas that a manifest leaves out, which a 0 in the type does not show.
func setReplicas(js *jobsetapi.JobSet, raw []byte) {
	if !slices.ContainsFunc(js.Spec.ReplicatedJobs, func(r jobsetapi.ReplicatedJob) bool { return r.Replicas == 0 }) {
		return
	}
	var given struct {
		Spec struct {
			ReplicatedJobs []struct {
				Replicas *int32 `json:"replicas"`
			} `json:"replicatedJobs"`
		} `json:"spec"`
	}
	// The same text was decoded before.
	_ = json.Unmarshal(raw, &given)
	for i := range given.Spec.ReplicatedJobs {
		js.Spec.ReplicatedJobs[i].Replicas = ptr.Deref(given.Spec.ReplicatedJobs[i].Replicas, 1)
	}
}

// readLines decodes a file with an object per line, and returns the number of objects.
func (d *decoder) readLines(kind *Kind, file string, r io.Reader) (objects int, err error) {
	var rest []byte
	for {
		chunk := make([]byte, batchBytes)
		n, err := fill(r, chunk)
		chunk = append(rest, chunk[:n]...)
		isLast := err == io.EOF //nolint:errorlint // only the end of the file itself is no error
		if err != nil && !isLast {
			return objects, fmt.Errorf("%s: %w", file, err)
		}
		end := bytes.LastIndexByte(chunk, '\n') + 1
		before := objects
		b := &batch{kind: kind, placeOf: func(i int) string { return fmt.Sprintf("%s line %d", file, before+i+1) }, raw: splitLines(chunk[:end])}
		b.interner = &d.interner
		rest = chunk[end:len(chunk):len(chunk)]
		objects += len(b.raw)
		if len(b.raw) > 0 {
			d.add(b)
		}
		if isLast {
			break
		}
	}
	if len(rest) > 0 {
		return objects, fmt.Errorf("%s: line %d ends early: the file is truncated", file, objects+1)
	}
	return objects, nil
}

// fill reads until the buffer is full or an error occurs, and returns that error. Unlike that of io.ReadFull, it differs for a file that has
// ended and one that is damaged.
func fill(r io.Reader, buffer []byte) (n int, err error) {
	for n < len(buffer) && err == nil {
		var more int
		more, err = r.Read(buffer[n:])
		n += more
	}
	return n, err
}

func splitLines(chunk []byte) [][]byte {
	var lines [][]byte
	for line := range bytes.Lines(chunk) {
		lines = append(lines, line)
	}
	return lines
}
