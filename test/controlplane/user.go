package controlplane

import (
	"fmt"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// UserConfig returns a configuration for clients that act as a user, authenticated by a client certificate, or by a token if the user is a component, the
// admin, or in Config.Users. The user need not be created, and RBAC decides its permissions. The name may be that of a service account (system:serviceaccount:NAMESPACE:NAME), and then gets the
// groups of service accounts. It panics only if the machine cannot make a certificate.
func (p *ControlPlane) UserConfig(user string, groups ...string) *rest.Config {
	if account, ok := strings.CutPrefix(user, "system:serviceaccount:"); ok {
		namespace, _, _ := strings.Cut(account, ":")
		groups = append([]string{"system:serviceaccounts", "system:serviceaccounts:" + namespace}, groups...)
	}
	base := &rest.Config{
		Host:            p.apiserver.SecureServing.URL("https", "").String(),
		TLSClientConfig: rest.TLSClientConfig{CAData: p.authority.pair.certificate},
		QPS:             -1, // tests do not wait for client-side throttling
	}
	config, err := p.authority.AddUser(envtest.User{Name: user, Groups: groups}, base)
	if err != nil {
		panic(err)
	}
	return config
}

// Kubeconfig writes a kubeconfig file for a user as UserConfig takes it. The empty user is the admin.
func (p *ControlPlane) Kubeconfig(path, user string, groups ...string) error {
	config := p.admin
	if user == "" {
		user = "admin"
	} else {
		config = p.UserConfig(user, groups...)
	}
	const cluster = "tranche"
	file := clientcmdapi.NewConfig()
	file.Clusters[cluster] = &clientcmdapi.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData}
	file.AuthInfos[user] = &clientcmdapi.AuthInfo{
		Token: config.BearerToken, ClientCertificateData: config.CertData, ClientKeyData: config.KeyData,
	}
	file.Contexts[cluster] = &clientcmdapi.Context{Cluster: cluster, AuthInfo: user}
	file.CurrentContext = cluster
	if err := clientcmd.WriteToFile(*file, path); err != nil {
		return fmt.Errorf("write kubeconfig of %q: %w", user, err)
	}
	return nil
}
