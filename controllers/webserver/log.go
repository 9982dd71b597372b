package webserver

import (
	"log"

	"github.com/go-logr/logr"
)

// ErrorLog returns a log for a server that writes what net/http reports about clients to the detailed log: browsers refuse self-signed certificates all the time.
func ErrorLog(to logr.Logger) *log.Logger { return log.New(detailed{to}, "", 0) }

type detailed struct{ log logr.Logger }

// Write implements io.Writer.
func (d detailed) Write(text []byte) (int, error) {
	d.log.V(1).Info("Serving a client", "problem", string(text))
	return len(text), nil
}
