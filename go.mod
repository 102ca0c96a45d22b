module github.com/sonde-trace/sonde

go 1.26.0
