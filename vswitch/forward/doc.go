// Package forward moves frames between ports: workers that run to completion over snapshots made by one control goroutine.
package forward
