// Only read: the CRDs of ServiceMonitor and PrometheusRule are in this module's example folder.
module lockstep/tests/monitoring

go 1.26

require github.com/prometheus-operator/prometheus-operator v0.85.0
