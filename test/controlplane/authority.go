package controlplane

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/csv"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// An authority signs the certificates of one control plane: those of its servers and those by which users prove who they are. Users whom it knows before
// the API server starts have tokens instead: the API server verifies a certificate with each request, and a token once.
type authority struct {
	certificate *x509.Certificate
	key         crypto.Signer
	pair        keyPair
	tokens      map[string]token // by user and groups
	isStarted   bool             // the API server has read the tokens
}

// A token is what a user has instead of a certificate.
type token struct {
	user   envtest.User
	secret string
}

// A keyPair is a certificate and its key, as PEM.
type keyPair struct{ certificate, key []byte }

var _ envtest.Authn = (*authority)(nil)

func newAuthority() (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the key of a certificate authority: %w", err)
	}
	return newAuthorityWith(key)
}

// newAuthorityWith makes an authority with a key, whose own certificate is for some names.
func newAuthorityWith(key crypto.Signer, names ...string) (*authority, error) {
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "tranche-controlplane"},
		DNSNames:              names,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		IsCA:                  true,
		BasicConstraintsValid: true,
	}
	a := &authority{key: key, tokens: map[string]token{}}
	var err error
	a.certificate = template
	if a.pair, err = a.sign(template, a.key); err != nil {
		return nil, err
	}
	block, _ := pem.Decode(a.pair.certificate)
	if a.certificate, err = x509.ParseCertificate(block.Bytes); err != nil {
		return nil, fmt.Errorf("read the certificate of a certificate authority: %w", err)
	}
	return a, nil
}

// server returns a certificate for a server that is reached under these addresses and names.
func (a *authority) server(hosts ...string) (keyPair, error) {
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: hosts[0]},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	return a.issue(template)
}

// client returns a certificate by which a user proves its name and groups.
func (a *authority) client(user string, groups []string) (keyPair, error) {
	return a.issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: groups},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

func (a *authority) issue(template *x509.Certificate) (keyPair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return keyPair{}, fmt.Errorf("make a key for %q: %w", template.Subject.CommonName, err)
	}
	return a.sign(template, key)
}

func (a *authority) sign(template *x509.Certificate, key crypto.Signer) (keyPair, error) {
	name := template.Subject.CommonName
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return keyPair{}, fmt.Errorf("number the certificate of %q: %w", name, err)
	}
	template.SerialNumber = serial
	template.NotBefore = time.Now().Add(-time.Hour)
	template.NotAfter = time.Now().AddDate(1, 0, 0)
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		return keyPair{}, fmt.Errorf("sign the certificate of %q: %w", name, err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return keyPair{}, fmt.Errorf("encode the key of %q: %w", name, err)
	}
	return keyPair{
		certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		key:         pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}),
	}, nil
}

func (k keyPair) write(dir, certificateName, keyName string) error {
	if err := os.WriteFile(filepath.Join(dir, certificateName), k.certificate, 0o600); err != nil {
		return fmt.Errorf("write a certificate: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, keyName), k.key, 0o600); err != nil {
		return fmt.Errorf("write the key of a certificate: %w", err)
	}
	return nil
}

// Configure makes the API server trust the authority. envtest calls it before each start.
func (a *authority) Configure(workDir string, args *envtest.Arguments) error {
	path := filepath.Join(workDir, "users-ca.crt")
	args.Set("client-ca-file", path)
	if err := os.WriteFile(path, a.pair.certificate, 0o600); err != nil {
		return fmt.Errorf("write the certificate of the users' authority: %w", err)
	}
	a.isStarted = true
	path = filepath.Join(workDir, "tokens.csv")
	args.Set("token-auth-file", path)
	if err := a.writeTokens(path); err != nil {
		return fmt.Errorf("write the tokens of users: %w", err)
	}
	return nil
}

// writeTokens writes the file that the API server reads tokens from.
func (a *authority) writeTokens(path string) error {
	var file bytes.Buffer
	w := csv.NewWriter(&file)
	for _, t := range a.tokens {
		if err := w.Write([]string{t.secret, t.user.Name, t.user.Name, strings.Join(t.user.Groups, ",")}); err != nil {
			return err
		}
	}
	w.Flush()
	return errors.Join(w.Error(), os.WriteFile(path, file.Bytes(), 0o600))
}

// Start has nothing to do: the authority is no process.
func (a *authority) Start() error { return nil }

// AddUser completes a client's configuration with the token of a user, or with a certificate if the API server has been started before.
func (a *authority) AddUser(user envtest.User, base *rest.Config) (*rest.Config, error) {
	config := rest.CopyConfig(base)
	key := fmt.Sprint(user)
	if _, ok := a.tokens[key]; !ok && !a.isStarted {
		a.tokens[key] = token{user, rand.Text()}
	}
	if t, ok := a.tokens[key]; ok {
		config.BearerToken = t.secret
		return config, nil
	}
	pair, err := a.client(user.Name, user.Groups)
	if err != nil {
		return nil, err
	}
	config.CertData, config.KeyData = pair.certificate, pair.key
	return config, nil
}

// Stop has nothing to do: the authority is no process.
func (a *authority) Stop() error { return nil }
