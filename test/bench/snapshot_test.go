package bench_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"runtime"
	"testing"
	"testing/fstest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/snapshot"
)

// BenchmarkReadSnapshot reads pending quota Workloads from the directory of a snapshot and from its archive. bytes/workload is the memory
// that each of them uses afterwards.
func BenchmarkReadSnapshot(b *testing.B) {
	for _, count := range []int{1000, 10_000, 100_000} {
		files := writeSnapshot(b, pendingSnapshot(count))
		var archive bytes.Buffer
		if err := snapshot.Pack(&archive, files); err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprintf("directory/workloads=%d", count), func(b *testing.B) {
			measureRead(b, count, func() (*snapshot.Snapshot, error) { return snapshot.ReadDir(files) })
		})
		b.Run(fmt.Sprintf("archive/workloads=%d", count), func(b *testing.B) {
			measureRead(b, count, func() (*snapshot.Snapshot, error) {
				return snapshot.ReadStream("archive", bytes.NewReader(archive.Bytes()))
			})
		})
	}
}

func measureRead(b *testing.B, count int, read func() (*snapshot.Snapshot, error)) {
	b.Helper()
	before := heapBytes()
	var s *snapshot.Snapshot
	for b.Loop() {
		var err error
		if s, err = read(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(heapBytes()-before)/float64(count), "bytes/workload")
	if len(s.Workloads) != count {
		b.Fatalf("%d quota Workloads, want %d", len(s.Workloads), count)
	}
}

// BenchmarkReadManifests reads the same quota Workloads as kubectl prints them.
func BenchmarkReadManifests(b *testing.B) {
	list := kueue.WorkloadList{TypeMeta: metav1.TypeMeta{APIVersion: kueue.SchemeGroupVersion.String(), Kind: "WorkloadList"}}
	for _, w := range pendingSnapshot(1000).Workloads {
		list.Items = append(list.Items, *w)
	}
	for format, marshal := range map[string]func(any) ([]byte, error){"json": json.Marshal, "yaml": yaml.Marshal} {
		text, err := marshal(list)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(format+"/workloads=1000", func(b *testing.B) {
			measureRead(b, len(list.Items), func() (*snapshot.Snapshot, error) { return snapshot.ReadStream(format, bytes.NewReader(text)) })
		})
	}
}

// BenchmarkWriteSnapshot writes pending quota Workloads with their names and with pseudonyms.
func BenchmarkWriteSnapshot(b *testing.B) {
	s := pendingSnapshot(10_000)
	create := func(string) (io.WriteCloser, error) { return discarded{io.Discard}, nil }
	for name, anonymizer := range map[string]func() *snapshot.Anonymizer{
		"named": func() *snapshot.Anonymizer { return nil }, "anonymized": snapshot.NewAnonymizer,
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if err := s.Write(create, anonymizer()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

type discarded struct{ io.Writer }

func (discarded) Close() error { return nil }

func heapBytes() uint64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

type fileBuffer struct{ *bytes.Buffer }

func (fileBuffer) Close() error { return nil }

func writeSnapshot(b *testing.B, s *snapshot.Snapshot) fs.FS {
	b.Helper()
	buffers := map[string]fileBuffer{}
	err := s.Write(func(name string) (io.WriteCloser, error) {
		buffers[name] = fileBuffer{&bytes.Buffer{}}
		return buffers[name], nil
	}, nil)
	if err != nil {
		b.Fatal(err)
	}
	files := fstest.MapFS{}
	for name, content := range buffers {
		files[name] = &fstest.MapFile{Data: content.Bytes()}
	}
	return files
}

// pendingSnapshot has quota Workloads of JobSets as the manager writes them.
func pendingSnapshot(count int) *snapshot.Snapshot {
	s := &snapshot.Snapshot{TakenAt: time.Unix(1, 0)}
	at := metav1.NewTime(time.Unix(0, 0))
	for i := range count {
		namespace, jobSet := fmt.Sprintf("team-%d", i%100), fmt.Sprintf("fine-tune-%06d", i/2)
		message := "couldn't assign flavors to pod set train: insufficient unused quota for nvidia.com/gpu in flavor h100, 8 more needed"
		w := &kueue.Workload{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: namespace, Name: fmt.Sprintf("jobset-%s-train-%05x", jobSet, i), UID: types.UID(fmt.Sprintf("00000000-0000-0000-0000-%012d", i)),
				ResourceVersion: fmt.Sprint(i), Generation: 1, CreationTimestamp: at, Finalizers: []string{kueue.ResourceInUseFinalizerName},
				Labels:      map[string]string{apis.JobSetLabel: jobSet, apis.StageLabel: "train", apis.StageIndexLabel: "1", apis.JobUIDLabel: fmt.Sprint(i / 2)},
				Annotations: map[string]string{apis.AttemptAnnotation: "0"},
				OwnerReferences: []metav1.OwnerReference{{
					APIVersion: "jobset.x-k8s.io/v1alpha2", Kind: "JobSet", Name: jobSet, UID: types.UID(fmt.Sprint(i / 2)), Controller: new(true), BlockOwnerDeletion: new(true),
				}},
			},
			Spec: kueue.WorkloadSpec{
				QueueName: kueue.LocalQueueName(fmt.Sprintf("queue-%d", i%1000)), Priority: new(int32(0)), Active: new(true),
				PodSets: []kueue.PodSet{{Name: "train", Count: 64, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
					RestartPolicy: corev1.RestartPolicyNever, NodeSelector: map[string]string{"accelerator": "h100"},
					Tolerations: []corev1.Toleration{{Key: "nvidia.com/gpu", Operator: corev1.TolerationOpExists}},
					Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{
						Requests: corev1.ResourceList{
							corev1.ResourceCPU: resource.MustParse("16"), corev1.ResourceMemory: resource.MustParse("64Gi"), "nvidia.com/gpu": resource.MustParse("8"),
						},
						Limits: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("8")},
					}}},
				}}}},
			},
			Status: kueue.WorkloadStatus{Conditions: []metav1.Condition{
				{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionFalse, Reason: "Pending", Message: message, LastTransitionTime: at, ObservedGeneration: 1},
				{Type: apis.WaitingCondition, Status: metav1.ConditionTrue, Reason: "WaitingForQuota", Message: message, LastTransitionTime: at, ObservedGeneration: 1},
			}},
		}
		s.Workloads = append(s.Workloads, w)
	}
	return s
}
