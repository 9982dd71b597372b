package controlplane

import (
	"path/filepath"

	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// aggregator is the user name of the API server when it forwards requests.
const aggregator = "front-proxy"

// configureAggregation lets the API server forward requests to other API servers, with a certificate of an authority that signs nothing
// else: a client with such a certificate may impersonate any user.
func configureAggregation(api *envtest.APIServer) error {
	proxies, err := newAuthority()
	if err != nil {
		return err
	}
	client, err := proxies.client(aggregator, nil)
	if err != nil {
		return err
	}
	const ca, certificate, key = "front-proxy-ca.crt", "front-proxy.crt", "front-proxy.key"
	if err := proxies.pair.write(api.CertDir, ca, "front-proxy-ca.key"); err != nil {
		return err
	}
	if err := client.write(api.CertDir, certificate, key); err != nil {
		return err
	}
	api.Configure().
		Set("requestheader-client-ca-file", filepath.Join(api.CertDir, ca)).
		Set("requestheader-allowed-names", aggregator).
		Set("requestheader-username-headers", "X-Remote-User").
		Set("requestheader-group-headers", "X-Remote-Group").
		Set("requestheader-extra-headers-prefix", "X-Remote-Extra-").
		Set("proxy-client-cert-file", filepath.Join(api.CertDir, certificate)).
		Set("proxy-client-key-file", filepath.Join(api.CertDir, key))
	return nil
}
