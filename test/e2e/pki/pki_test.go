package pki

import (
	"crypto/tls"
	"crypto/x509"
	"net/netip"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
)

func TestCertificateIsValidForItsAddressAndUser(t *testing.T) {
	a, err := NewAuthority("test")
	if err != nil {
		t.Fatal(err)
	}
	p, err := a.Issue(Subject{
		Name:      "system:node:n1",
		Groups:    []string{"system:nodes"},
		Addresses: []netip.Addr{netip.MustParseAddr("fd00::1")},
	})
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(p.Cert, p.Key)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(a.Cert)
	for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
		if _, err := pair.Leaf.Verify(x509.VerifyOptions{
			Roots:     roots,
			DNSName:   "fd00::1",
			KeyUsages: []x509.ExtKeyUsage{usage},
		}); err != nil {
			t.Errorf("usage %d: %v", usage, err)
		}
	}
	if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: "fd00::2"}); err == nil {
		t.Error("the certificate is valid for another address")
	}
	if s := pair.Leaf.Subject; s.CommonName != "system:node:n1" || len(s.Organization) != 1 ||
		s.Organization[0] != "system:nodes" {
		t.Errorf("the user is %v", s)
	}
}

func TestKubeconfigIsReadByClientGo(t *testing.T) {
	a, err := NewAuthority("test")
	if err != nil {
		t.Fatal(err)
	}
	p, err := a.Issue(Subject{Name: "admin"})
	if err != nil {
		t.Fatal(err)
	}
	file, err := a.Kubeconfig("https://192.0.2.1:6443", p)
	if err != nil {
		t.Fatal(err)
	}
	got, err := clientcmd.RESTConfigFromKubeConfig(file)
	if err != nil {
		t.Fatal(err)
	}
	want := a.Client("https://192.0.2.1:6443", p)
	if got.Host != want.Host || string(got.CertData) != string(want.CertData) ||
		string(got.KeyData) != string(want.KeyData) || string(got.CAData) != string(want.CAData) {
		t.Errorf("got %v", got)
	}
}
