package webserver

import (
	"crypto/tls"
	"net"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/cert"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
)

// Secure returns a TLS configuration with the certificate in the files tls.crt and tls.key of a directory, which the manager reads again when they change. If
// the directory is empty, the certificate is generated now and kept in memory.
//
// HTTP/2 is not served: clients that reset streams at a high rate must not keep the manager from its work.
func Secure(mgr ctrl.Manager, dir string) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
	if dir != "" {
		files, err := certwatcher.New(filepath.Join(dir, corev1.TLSCertKey), filepath.Join(dir, corev1.TLSPrivateKeyKey))
		if err != nil {
			return nil, err
		}
		config.GetCertificate = files.GetCertificate
		return config, mgr.Add(files)
	}
	certificate, key, err := cert.GenerateSelfSignedCertKey("localhost", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(certificate, key)
	config.Certificates = []tls.Certificate{pair}
	return config, err
}
