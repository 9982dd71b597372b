package watched

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	"k8s.io/apimachinery/pkg/api/resource"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/watch"
	restwatch "k8s.io/client-go/rest/watch"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/cmd/tranche/query"
)

// refusing is a decoder of client-go that must not be needed.
type refusing struct{ runtime.Decoder }

var errRefused = errors.New("left to client-go")

func (refusing) Decode([]byte, *schema.GroupVersionKind, runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	return nil, nil, errRefused
}

func newScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme, err := query.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	return scheme
}

// TestDecodesAsClientGo: whatever fields objects have, they are decoded here, and equal what client-go decodes but for the managed fields.
func TestDecodesAsClientGo(t *testing.T) {
	scheme := newScheme(t)
	codecs := serializer.NewCodecFactory(scheme)
	for _, k := range kinds() {
		t.Run(k.resource, func(t *testing.T) {
			standard := codecs.UniversalDeserializer()
			own := newDecoder(scheme, k, nil)
			own.standard = refusing{}
			for seed := range int64(200) {
				object := k.new()
				fuzzer.FuzzerFor(metafuzzer.Funcs, rand.NewSource(seed), codecs).Fill(object)
				object.GetObjectKind().SetGroupVersionKind(k.gvk)
				data, err := json.Marshal(object)
				if err != nil {
					t.Fatal(err)
				}
				want, _, err := standard.Decode(data, nil, nil)
				if err != nil {
					t.Fatal(err)
				}
				want.(metav1.Object).SetManagedFields(nil)
				got, gvk, err := own.Decode(data, nil, nil)
				if err != nil || *gvk != k.gvk {
					t.Fatalf("seed %d: %v, %v", seed, gvk, err)
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Fatalf("seed %d: -want +got\n%s", seed, diff)
				}
			}
		})
	}
}

// TestQuirks: whatever is strange about an object, it is what client-go makes of it.
func TestQuirks(t *testing.T) {
	scheme := newScheme(t)
	k := kinds()[0]
	d := newDecoder(scheme, k, nil)
	for _, fields := range []string{
		`"spec":null,"status":{"conditions":null,"admission":null}`, `"spec":{"podSets":[],"queueName":""},"metadata":{"labels":{},"name":null}`,
		`"Spec":{"queueName":"other case"},"spec":{"QUEUENAME":"q"}`, `"unknown":{"a":[1,{"b":null}]},"spec":{"queueName":"q"}`,
		`"spec":{"queueName":"first","queueName":"last"}`, `"metadata":{"name":"a\ud800b"}`, "\"metadata\":{\"name\":\"a\xffb\"}", `"spec":{"priority":99999999999}`,
		`"spec":{"priority":1.0}`, `"metadata":{"creationTimestamp":null}`, `"spec":{"podSets":[{"count":"many"}]}`,
	} {
		data := []byte(`{"apiVersion":"kueue.x-k8s.io/v1beta2","kind":"Workload",` + fields + `}`)
		want, _, wantErr := d.standard.Decode(data, nil, nil)
		got, _, gotErr := d.Decode(data, nil, nil)
		if (wantErr == nil) != (gotErr == nil) || wantErr == nil && !cmp.Equal(want, got) {
			t.Errorf("%s: got %v, %v, want %v, %v", fields, got, gotErr, want, wantErr)
		}
		list := `{"metadata":{"resourceVersion":"9"},"items":[` + string(data) + `]}`
		if _, err := d.decodeList(strings.NewReader(list)); (err == nil) != (wantErr == nil) {
			t.Errorf("%s in a list: got %v, want %v", fields, err, wantErr)
		}
	}
}

// TestWatch decodes a stream with all that a server may send.
func TestWatch(t *testing.T) {
	const (
		workload = `{"apiVersion":"kueue.x-k8s.io/v1beta2","kind":"Workload","metadata":{"name":"w","managedFields":[{"manager":"m"}]}}`
		status   = `{"apiVersion":"v1","kind":"Status","metadata":{},"status":"Failure","code":410,"reason":"Expired"}`
		twice    = `{"apiVersion":"kueue.x-k8s.io/v1beta2","kind":"Workload","metadata":{"name":"first","name":"last"}}`
	)
	stream := `{"type":"ADDED","object":` + workload + "}\n" +
		`{"object":` + workload + `, "type":"MODIFIED"}` +
		`{"type":"BOOKMARK","object":{"kind":"Workload","apiVersion":"kueue.x-k8s.io/v1beta2","metadata":{"resourceVersion":"7"}}}` + "\n" +
		`{"type":"ADDED","object":` + twice + "}\n" +
		`{"type":"ERROR","object":` + status + "}\n"
	d := newWatch(t, kinds()[0], io.NopCloser(bytes.NewReader([]byte(stream))))
	for _, want := range []struct {
		watch.EventType
		name string
	}{{watch.Added, "w"}, {watch.Modified, "w"}, {watch.Bookmark, ""}, {watch.Added, "last"}} {
		kind, object, err := d.Decode()
		if err != nil {
			t.Fatal(err)
		}
		if w, is := object.(*kueue.Workload); kind != want.EventType || !is || w.Name != want.name {
			t.Errorf("got %s %v, want %v", kind, object, want)
		}
	}
	kind, object, err := d.Decode()
	if found, is := object.(*metav1.Status); err != nil || kind != watch.Error || !is || found.Code != 410 {
		t.Errorf("got %s %v, %v", kind, object, err)
	}
	if _, _, err := d.Decode(); !errors.Is(err, io.EOF) {
		t.Errorf("got %v at the end", err)
	}
}

// TestList decodes a list, also objects that only client-go can decode, and transforms each object.
func TestList(t *testing.T) {
	const list = `{"kind":"WorkloadList","apiVersion":"kueue.x-k8s.io/v1beta2","items":[
		{"apiVersion":"kueue.x-k8s.io/v1beta2","kind":"Workload","metadata":{"name":"a","managedFields":[{"manager":"m"}]},"unknown":[{"items":[]}]},
		{"apiVersion":"kueue.x-k8s.io/v1beta2","kind":"Workload","metadata":{"name":"first","name":"b"}}
	],"extra":{"metadata":{"resourceVersion":"1"}},"metadata":{"resourceVersion":"9","continue":"next","remainingItemCount":3}}`
	d := newDecoder(newScheme(t), kinds()[0], func(object any) (any, error) {
		object.(*kueue.Workload).Labels = map[string]string{"is": "transformed"}
		return object, nil
	})
	got, err := d.decodeList(strings.NewReader(list))
	if err != nil {
		t.Fatal(err)
	}
	if got.ResourceVersion != "9" || got.Continue != "next" || *got.RemainingItemCount != 3 {
		t.Errorf("got %v", got.ListMeta)
	}
	var names []string
	for _, item := range got.Items {
		w := item.(*kueue.Workload)
		names = append(names, w.Name+" "+w.Labels["is"])
		if len(w.ManagedFields) > 0 {
			t.Errorf("%s has managed fields", w.Name)
		}
	}
	if diff := cmp.Diff([]string{"a transformed", "b transformed"}, names); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if got, err := d.decodeList(strings.NewReader(`{"metadata":{"resourceVersion":"9"},"items":null}`)); err != nil || len(got.Items) > 0 {
		t.Errorf("got %v, %v", got, err)
	}
}

// TestBrokenList: a list that is not complete is an error, however far it came.
func TestBrokenList(t *testing.T) {
	const list = `{"metadata":{"resourceVersion":"9"},"items":[{"apiVersion":"kueue.x-k8s.io/v1beta2","kind":"Workload","metadata":{"name":"a"}}]}`
	d := newDecoder(newScheme(t), kinds()[0], nil)
	if got, err := d.decodeList(strings.NewReader(list)); err != nil || len(got.Items) != 1 {
		t.Fatalf("got %v, %v", got, err)
	}
	for n := range len(list) {
		if got, err := d.decodeList(strings.NewReader(list[:n])); err == nil {
			t.Errorf("%s is %v", list[:n], got)
		}
	}
	for _, broken := range []string{`[]`, `{"items":[]}`, `{"metadata":{"resourceVersion":"9"},"items":{}}`, `{"metadata":{"resourceVersion":"9"},"items":[7]}`} {
		if got, err := d.decodeList(strings.NewReader(broken)); err == nil {
			t.Errorf("%s is %v", broken, got)
		}
	}
	d.transform = func(any) (any, error) { return nil, errRefused }
	if _, err := d.decodeList(strings.NewReader(list)); !errors.Is(err, errRefused) {
		t.Errorf("got %v from a transform that fails", err)
	}
}

// TestLongEvents: an event may be longer than the buffer of client-go, and events arrive in parts.
func TestLongEvents(t *testing.T) {
	long := strings.Repeat("x", 100_000)
	var stream strings.Builder
	for _, name := range []string{"short", long, "last"} {
		_, _ = fmt.Fprintf(&stream, `{"type":"ADDED","object":{"apiVersion":"kueue.x-k8s.io/v1beta2","kind":"Workload","metadata":{"name":%q}}}`, name)
	}
	d := newWatch(t, kinds()[0], io.NopCloser(iotest.OneByteReader(strings.NewReader(stream.String()))))
	for _, want := range []string{"short", long, "last"} {
		_, object, err := d.Decode()
		if err != nil {
			t.Fatal(err)
		}
		if got := object.(*kueue.Workload).Name; got != want {
			t.Errorf("got a name of %d bytes, want %d", len(got), len(want))
		}
	}
	if _, _, err := d.Decode(); !errors.Is(err, io.EOF) {
		t.Errorf("got %v at the end", err)
	}
}

// TestBrokenWatch: what is no event, and what is no object, is an error.
func TestBrokenWatch(t *testing.T) {
	for _, stream := range []string{
		`{"type":"ADDED"}`, `{"type":"SOMETHING","object":{}}`, `{"type":"ADDED","object":{"kind":"Workload"}}`, `[]`, `{"type":"ADDED","object":7}`, `{"type":"ADDED"`,
		`{"type":"ADDED","object":{"apiVersion":"kueue.x-k8s.io/v1beta2","kind":"Workload","spec":{"podSets":[{"count":"many"}]}}}`,
	} {
		d := newWatch(t, kinds()[0], io.NopCloser(bytes.NewReader([]byte(stream))))
		if kind, object, err := d.Decode(); err == nil {
			t.Errorf("%s is %s %v", stream, kind, object)
		}
	}
}

// newWatch decodes a stream as the client of client-go does.
func newWatch(t *testing.T, k kind, stream io.ReadCloser) *restwatch.Decoder {
	t.Helper()
	objects, events, framer, err := runtime.NewClientNegotiator(newSerializer(newDecoder(newScheme(t), k, nil)), k.gvk.GroupVersion()).StreamDecoder(runtime.ContentTypeJSON, nil)
	if err != nil {
		t.Fatal(err)
	}
	return restwatch.NewDecoder(streaming.NewDecoder(framer.NewFrameReader(stream), events), objects)
}

// TestBrokenConnection: client-go watches on after these errors, which it compares by ==. After others it lists everything again.
func TestBrokenConnection(t *testing.T) {
	const event = `{"type":"ADDED","object":` + oneWorkload + `}`
	for name, stream := range map[string]io.Reader{
		"in an event":    strings.NewReader(event + event[:40]),
		"between events": io.MultiReader(strings.NewReader(event), iotest.ErrReader(io.ErrUnexpectedEOF)),
	} {
		d := newWatch(t, kinds()[0], io.NopCloser(stream))
		if _, _, err := d.Decode(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if _, _, err := d.Decode(); err != io.ErrUnexpectedEOF { //nolint:errorlint // as client-go does
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// BenchmarkWatch decodes the events of a watch, here and as client-go does.
func BenchmarkWatch(b *testing.B) {
	scheme, err := query.NewScheme()
	if err != nil {
		b.Fatal(err)
	}
	w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: "train", ManagedFields: []metav1.ManagedFieldsEntry{{
		Manager: "e2e", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "kueue.x-k8s.io/v1beta2", FieldsType: "FieldsV1",
		FieldsV1: metav1.NewFieldsV1(`{"f:spec":{".":{},"f:active":{},"f:podSets":{".":{},"k:{\"name\":\"main\"}":{".":{},"f:count":{},"f:name":{},"f:template":{
			".":{},"f:spec":{".":{},"f:containers":{},"f:restartPolicy":{}}}}},"f:priority":{},"f:queueName":{}}}`),
	}}}}
	w.SetGroupVersionKind(kinds()[0].gvk)
	w.Spec.QueueName = "queue"
	w.Spec.PodSets = []kueue.PodSet{{Name: "main", Count: 4, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever, DNSPolicy: corev1.DNSClusterFirst, TerminationGracePeriodSeconds: new(int64(30)),
		Containers: []corev1.Container{{Name: "c", Image: "example.com/train", Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("4Gi")},
		}}},
	}}}}
	for _, t := range []string{kueue.WorkloadQuotaReserved, "tranche.dev/Waiting"} {
		w.Status.Conditions = append(w.Status.Conditions, metav1.Condition{
			Type: t, Status: metav1.ConditionFalse, Reason: "WaitingForQuota", LastTransitionTime: metav1.Unix(1_800_000_000, 0),
			Message: "needs 4 cpu of flavor default: 0 of 100 free",
		})
	}
	object, err := json.Marshal(w)
	if err != nil {
		b.Fatal(err)
	}
	event := `{"type":"MODIFIED","object":` + string(object) + "}\n"
	own := newDecoder(scheme, kinds()[0], nil)
	for name, format := range map[string]runtime.NegotiatedSerializer{"own": newSerializer(own), "client-go": own.codecs} {
		b.Run(name, func(b *testing.B) {
			objects, events, framer, err := runtime.NewClientNegotiator(format, kinds()[0].gvk.GroupVersion()).StreamDecoder(runtime.ContentTypeJSON, nil)
			if err != nil {
				b.Fatal(err)
			}
			d := restwatch.NewDecoder(streaming.NewDecoder(framer.NewFrameReader(io.NopCloser(endless{strings.NewReader(event)})), events), objects)
			b.SetBytes(int64(len(event)))
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := d.Decode(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// endless reads the same again and again.
type endless struct{ *strings.Reader }

func (e endless) Read(p []byte) (int, error) {
	n, err := e.Reader.Read(p)
	if errors.Is(err, io.EOF) {
		_, err = e.Seek(0, io.SeekStart)
	}
	return n, err
}
