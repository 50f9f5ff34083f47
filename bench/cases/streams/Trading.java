import java.io.Serializable;
import java.util.ArrayList;
import java.util.List;

import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.MapFunction;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.connector.file.src.FileSource;
import org.apache.flink.connector.file.src.reader.TextLineInputFormat;
import org.apache.flink.core.fs.Path;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;

/**
 * The trading query of bench.cases.streams.cql as one process function of Apache Flink, in one task. Arguments: files
 * of lines "stream,time,id,value", in the order of time; each is a job of its own. Prints the seconds of each job, and
 * its orders.
 */
public final class Trading {
    /** A line. Streams: 0 offers, 1 cash, 2 the number held of a stock. */
    public static final class Event implements Serializable {
        public int stream;
        public long time;
        public String id;
        public double value;

        public Event() {}
    }

    /** Buys a thousand of a stock that costs less than 500, of which there is none, if the cash suffices. */
    static final class Buys extends KeyedProcessFunction<Integer, Event, String> {
        private transient ValueState<Double> cash;
        private transient MapState<String, Integer> stock;

        @Override
        public void open(OpenContext context) {
            cash = getRuntimeContext().getState(new ValueStateDescriptor<>("cash", Double.class));
            stock = getRuntimeContext().getMapState(new MapStateDescriptor<>("stock", String.class, Integer.class));
        }

        @Override
        public void processElement(Event event, Context context, Collector<String> orders) throws Exception {
            if (event.stream == 1) {
                cash.update(event.value);
            } else if (event.stream == 2) {
                stock.put(event.id, (int) event.value);
            } else if (event.value < 500) {
                Integer held = stock.get(event.id);
                if (held != null && held == 0 && cash.value() > event.value * 1000) {
                    stock.put(event.id, 1000);
                    cash.update(cash.value() - event.value * 1000);
                    orders.collect(event.time + "," + event.id + ",1000," + event.value);
                }
            }
        }
    }

    /** Reads lines into one event, which is copied before the next line: the job reuses objects. */
    static final class Parses implements MapFunction<String, Event> {
        private final Event event = new Event();

        @Override
        public Event map(String line) {
            String[] parts = line.split(",");
            event.stream = Integer.parseInt(parts[0]);
            event.time = Long.parseLong(parts[1]);
            event.id = parts[2];
            event.value = Double.parseDouble(parts[3]);
            return event;
        }
    }

    private static List<String> orders(String file) throws Exception {
        StreamExecutionEnvironment flink = StreamExecutionEnvironment.createLocalEnvironment(1);
        flink.getConfig().enableObjectReuse();
        FileSource<String> lines =
                FileSource.forRecordStreamFormat(new TextLineInputFormat(), new Path(file)).build();
        List<String> found = new ArrayList<>();
        try (var orders = flink.fromSource(lines, WatermarkStrategy.noWatermarks(), "events")
                .map(new Parses())
                .keyBy(event -> 0)
                .process(new Buys())
                .executeAndCollect()) {
            orders.forEachRemaining(found::add);
        }
        return found;
    }

    public static void main(String[] files) throws Exception {
        for (String file : files) {
            long began = System.nanoTime();
            List<String> orders = orders(file);
            System.out.println((System.nanoTime() - began) / 1e9 + ";" + String.join(";", orders));
        }
    }
}
