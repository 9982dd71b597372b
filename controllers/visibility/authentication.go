package visibility

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/client-go/kubernetes"
)

const (
	// trustConfigMap, in kube-system, is where the API server publishes which clients to trust.
	trustConfigMap = "extension-apiserver-authentication"
	// cacheTime is how long an answer of the API server about a token or a permission is cached.
	cacheTime   = 10 * time.Second
	reviewLimit = 10 * time.Second
)

// authenticate delegates authentication to the API server: it authenticates the requests that it passes on, and verifies the certificates
// and tokens of clients that connect directly. The ConfigMap is watched until ctx ends.
func authenticate(ctx context.Context, config *genericapiserver.Config, c kubernetes.Interface) error {
	clients, err := dynamiccertificates.NewDynamicCAFromConfigMapController("client-ca", metav1.NamespaceSystem, trustConfigMap, "client-ca-file", c)
	if err != nil {
		return fmt.Errorf("trust client certificates: %w", err)
	}
	proxies, err := dynamiccertificates.NewDynamicCAFromConfigMapController("request-header", metav1.NamespaceSystem, trustConfigMap, "requestheader-client-ca-file", c)
	if err != nil {
		return fmt.Errorf("trust the API server as a proxy: %w", err)
	}
	headers := headerrequest.NewRequestHeaderAuthRequestController(trustConfigMap, metav1.NamespaceSystem, c,
		"requestheader-username-headers", "requestheader-uid-headers", "requestheader-group-headers",
		"requestheader-extra-headers-prefix", "requestheader-allowed-names")
	for _, once := range []func(context.Context) error{clients.RunOnce, proxies.RunOnce, headers.RunOnce} {
		if err := once(ctx); err != nil {
			return fmt.Errorf("read ConfigMap %s/%s: %w", metav1.NamespaceSystem, trustConfigMap, err)
		}
	}
	go headers.Run(ctx, 1)
	config.Authentication.RequestHeaderConfig = &authenticatorfactory.RequestHeaderConfig{
		CAContentProvider:   proxies,
		UsernameHeaders:     headerrequest.StringSliceProviderFunc(headers.UsernameHeaders),
		UIDHeaders:          headerrequest.StringSliceProviderFunc(headers.UIDHeaders),
		GroupHeaders:        headerrequest.StringSliceProviderFunc(headers.GroupHeaders),
		ExtraHeaderPrefixes: headerrequest.StringSliceProviderFunc(headers.ExtraHeaderPrefixes),
		AllowedClientNames:  headerrequest.StringSliceProviderFunc(headers.AllowedClientNames),
	}
	for _, ca := range []dynamiccertificates.CAContentProvider{clients, proxies} {
		if err := config.Authentication.ApplyClientCert(ca, config.SecureServing); err != nil {
			return fmt.Errorf("request client certificates: %w", err)
		}
	}
	delegating := authenticatorfactory.DelegatingAuthenticatorConfig{
		// Anonymous clients may read what every client may: discovery, by which the API server checks that this server works.
		Anonymous:                          &apiserver.AnonymousAuthConfig{Enabled: true},
		TokenAccessReviewClient:            c.AuthenticationV1(),
		TokenAccessReviewTimeout:           reviewLimit,
		WebhookRetryBackoff:                genericoptions.DefaultAuthWebhookRetryBackoff(),
		CacheTTL:                           cacheTime,
		ClientCertificateCAContentProvider: clients,
		RequestHeaderConfig:                config.Authentication.RequestHeaderConfig,
	}
	config.Authentication.Authenticator, _, err = delegating.New()
	return err
}

// authorize delegates authorization to the API server, including discovery.
func authorize(config *genericapiserver.Config, c kubernetes.Interface) error {
	options := authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: c.AuthorizationV1(),
		AllowCacheTTL:             cacheTime,
		DenyCacheTTL:              cacheTime,
		WebhookRetryBackoff:       genericoptions.DefaultAuthWebhookRetryBackoff(),
	}
	var err error
	config.Authorization.Authorizer, err = options.New()
	return err
}
