// Package statssocket knows where a dataplane serves its stats segment by default.
package statssocket

import "strings"

// Of returns the default path of the stats socket for an API socket: beside it, with stats.sock for api.sock, as in
// VPP.
func Of(apiSocket string) string {
	if beginning, ok := strings.CutSuffix(apiSocket, "api.sock"); ok {
		return beginning + "stats.sock"
	}
	return apiSocket + ".stats"
}
