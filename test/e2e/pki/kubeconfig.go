package pki

import (
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// only is the name of the single cluster, user and context of a kubeconfig.
const only = "e2e"

// Client returns a user's configuration for the API server at url.
func (a *Authority) Client(url string, p Pair) *rest.Config {
	return &rest.Config{
		Host:            url,
		TLSClientConfig: rest.TLSClientConfig{CAData: a.Cert, CertData: p.Cert, KeyData: p.Key},
	}
}

// Kubeconfig returns the same as a file, with the keys.
func (a *Authority) Kubeconfig(url string, p Pair) ([]byte, error) {
	config := api.NewConfig()
	config.Clusters[only] = &api.Cluster{Server: url, CertificateAuthorityData: a.Cert}
	config.AuthInfos[only] = &api.AuthInfo{ClientCertificateData: p.Cert, ClientKeyData: p.Key}
	config.Contexts[only] = &api.Context{Cluster: only, AuthInfo: only}
	config.CurrentContext = only
	file, err := clientcmd.Write(*config)
	if err != nil {
		return nil, fmt.Errorf("write a kubeconfig: %w", err)
	}
	return file, nil
}
