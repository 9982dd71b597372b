package controlplane

import (
	"path/filepath"

	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// aggregator is the name by which the API server is known to those to whom it passes requests on.
const aggregator = "front-proxy"

// configureAggregation lets the API server pass requests on to other API servers, with a certificate of an authority that signs nothing
// else: who has one may speak for anybody.
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
