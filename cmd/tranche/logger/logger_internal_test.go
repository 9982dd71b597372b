package logger

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestLogger: a logger writes the fields that it was given first before the others, those of another logger not, and no errors of objects in a namespace
// that is being deleted.
func TestLogger(t *testing.T) {
	core, written := observer.New(zapcore.InfoLevel)
	all := zap.New(calmCore{Core: core})
	ofJobSets := all.With(zap.String("controller", "jobset"))
	one, other := ofJobSets.With(zap.String("name", "a")), ofJobSets.With(zap.String("name", "b"))
	one.Info("planned", zap.Int("stages", 2))
	other.Info("planned")
	terminating := apierrors.NewForbidden(corev1.Resource("pods"), "p", nil)
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	one.Error("failed", zap.Error(terminating))
	one.Debug("too detailed")
	var got []string
	for _, entry := range written.All() {
		line := entry.Message
		for _, field := range entry.Context {
			line += " " + field.Key
			if field.Type == zapcore.StringType {
				line += "=" + field.String
			}
		}
		got = append(got, line)
	}
	if diff := cmp.Diff([]string{"planned controller=jobset name=a stages", "planned controller=jobset name=b"}, got); diff != "" {
		t.Errorf("written (-want +got):\n%s", diff)
	}
}
