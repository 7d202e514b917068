import org.codelibs.opensearch.runner.OpenSearchRunner;

/** One node of OpenSearch on 127.0.0.1 until SIGTERM: java OpenSearch.java FOLDER HTTP_PORT TRANSPORT_PORT */
public class OpenSearch {
    public static void main(String[] a) throws Exception {
        OpenSearchRunner r = new OpenSearchRunner();
        try {
            r.onBuild((n, s) -> {
                s.put("network.host", "127.0.0.1");
                s.put("http.port", a[1]);
                s.put("transport.port", a[2]);
                s.put("discovery.type", "single-node");
                s.put("cluster.routing.allocation.disk.threshold_enabled", false);
            }).build(OpenSearchRunner.newConfigs().clusterName("joblens").numOfNode(1).basePath(a[0]).useLogger());
        } catch (Throwable t) { t.printStackTrace(); System.exit(1); }
        Runtime.getRuntime().addShutdownHook(new Thread(() -> { try { r.close(); } catch (Exception e) { } }));
        Thread.sleep(Long.MAX_VALUE);
    }
}
