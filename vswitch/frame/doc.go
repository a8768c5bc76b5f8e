// Package frame holds the dataplane's packet buffers and the header views, checksums and length rules that read and write them in place.
package frame
