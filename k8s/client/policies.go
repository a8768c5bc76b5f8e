package client

import (
	"context"
	"fmt"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"
)

// NetworkPolicies is access to the metadata of all NetworkPolicies.
func (c *Client) NetworkPolicies() metadata.Getter {
	return c.metadata.Resource(networkingv1.SchemeGroupVersion.WithResource("networkpolicies"))
}

// CountPolicies is how many NetworkPolicies the cluster has. The API server counts them; the answer has one object at most.
func (c *Client) CountPolicies(ctx context.Context) (int, error) {
	list, err := c.NetworkPolicies().List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return 0, fmt.Errorf("count NetworkPolicies: %w", OneLine(err))
	}
	n := len(list.Items)
	if more := list.RemainingItemCount; more != nil {
		n += int(*more)
	}
	return n, nil
}
