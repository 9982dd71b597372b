// Package logger writes the log of the manager.
package logger

import (
	"slices"

	"github.com/go-logr/logr"
	uberzap "go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
)

// New returns a logger with the format and the verbosity of the configuration, which must have its defaults.
func New(config *configapi.Logging) logr.Logger {
	return zap.New(zap.UseDevMode(config.Format == configapi.LogText), zap.Level(zapLevel(*config.Verbosity)),
		zap.RawZapOpts(uberzap.WrapCore(func(core zapcore.Core) zapcore.Core { return calmCore{Core: core} })))
}

// A calmCore drops errors that only report that a namespace is being deleted: a new object there would be deleted with it.
type calmCore struct {
	zapcore.Core
	// fields are encoded only when something is written: each reconcile has a logger of its own, and most write nothing. To encode them at once took an eighth
	// of the processor time in which a new leader comes to its first decision.
	fields []zapcore.Field
}

// With implements zapcore.Core.
func (c calmCore) With(fields []zapcore.Field) zapcore.Core {
	return calmCore{Core: c.Core, fields: slices.Concat(c.fields, fields)}
}

// Check implements zapcore.Core.
func (c calmCore) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(entry.Level) {
		return checked.AddCore(entry, c)
	}
	return checked
}

// Write implements zapcore.Core.
func (c calmCore) Write(entry zapcore.Entry, fields []zapcore.Field) error {
	if slices.ContainsFunc(fields, isOfTerminatingNamespace) {
		return nil
	}
	return c.Core.Write(entry, slices.Concat(c.fields, fields))
}

func isOfTerminatingNamespace(field zapcore.Field) bool {
	err, isError := field.Interface.(error)
	return isError && apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// zapLevel converts our verbosity, which grows with detail, to zap's level, which falls.
func zapLevel(verbosity int32) zapcore.Level {
	return zapcore.Level(-verbosity) //nolint:gosec // the configuration allows 0 to 10
}
