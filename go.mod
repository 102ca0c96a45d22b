module github.com/sonde-trace/sonde

go 1.26.0

require (
	github.com/cilium/ebpf v0.22.0
	github.com/klauspost/compress v1.20.4
	golang.org/x/sys v0.50.0
)
