import java.time.Duration;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.MapFunction;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.connector.file.src.FileSource;
import org.apache.flink.connector.file.src.reader.TextLineInputFormat;
import org.apache.flink.core.fs.Path;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.util.Collector;

/**
 * Readings of bench.cases.streams.ordered in the order of time, by device: a keyed process function of Apache Flink
 * with timers, in one task. Arguments: the seconds that a watermark is behind the latest reading, and files of lines
 * "id,device,sensor,time,level"; each file is a job of its own. Prints of each job its seconds, how many readings came out,
 * the sum of their ids, and how many of them were out of order.
 */
public final class Ordering {
    /** A line. `time` in microseconds. */
    public static final class Reading {
        public long id;
        public int device;
        public int sensor;
        public long time;
        public double level;

        public Reading() {}
    }

    /** Keeps readings until the watermark has passed them. */
    static final class InOrder extends KeyedProcessFunction<Integer, Reading, Reading> {
        private transient MapState<Long, List<Reading>> waiting;

        @Override
        public void open(OpenContext context) {
            waiting = getRuntimeContext().getMapState(
                    new MapStateDescriptor<>("waiting", Types.LONG, Types.LIST(Types.POJO(Reading.class))));
        }

        @Override
        public void processElement(Reading reading, Context context, Collector<Reading> out) throws Exception {
            long millisecond = context.timestamp();
            if (millisecond <= context.timerService().currentWatermark()) {
                return; // late
            }
            List<Reading> sameTime = waiting.get(millisecond);
            if (sameTime == null) {
                sameTime = new ArrayList<>(1);
                context.timerService().registerEventTimeTimer(millisecond);
            }
            sameTime.add(reading);
            waiting.put(millisecond, sameTime);
        }

        @Override
        public void onTimer(long millisecond, OnTimerContext context, Collector<Reading> out) throws Exception {
            List<Reading> due = waiting.get(millisecond);
            due.sort(Comparator.comparingLong(reading -> reading.time));
            due.forEach(out::collect);
            waiting.remove(millisecond);
        }
    }

    /** What came out of a job, in the one task that there is. */
    static final class Told implements MapFunction<Reading, Reading> {
        static long rows;
        static long ids;
        static long outOfOrder;
        private final Map<Integer, Long> last = new HashMap<>();

        static void begin() {
            rows = ids = outOfOrder = 0;
        }

        @Override
        public Reading map(Reading reading) {
            Long before = last.put(reading.device, reading.time);
            rows++;
            ids += reading.id;
            outOfOrder += before != null && before > reading.time ? 1 : 0;
            return reading;
        }
    }

    private static Reading parsed(String line) {
        String[] parts = line.split(",");
        Reading reading = new Reading();
        reading.id = Long.parseLong(parts[0]);
        reading.device = Integer.parseInt(parts[1]);
        reading.sensor = Integer.parseInt(parts[2]);
        reading.time = Long.parseLong(parts[3]);
        reading.level = Double.parseDouble(parts[4]);
        return reading;
    }

    private static void run(String file, Duration delay) throws Exception {
        StreamExecutionEnvironment flink = StreamExecutionEnvironment.createLocalEnvironment(1);
        flink.getConfig().enableObjectReuse();
        FileSource<String> lines =
                FileSource.forRecordStreamFormat(new TextLineInputFormat(), new Path(file)).build();
        flink.fromSource(lines, WatermarkStrategy.noWatermarks(), "readings")
                .map(Ordering::parsed)
                .assignTimestampsAndWatermarks(WatermarkStrategy.<Reading>forBoundedOutOfOrderness(delay)
                        .withTimestampAssigner((reading, unknown) -> reading.time / 1000))
                .keyBy(reading -> reading.device)
                .process(new InOrder())
                .map(new Told())
                .sinkTo(new DiscardingSink<>());
        flink.execute();
    }

    public static void main(String[] arguments) throws Exception {
        Duration delay = Duration.ofSeconds(Long.parseLong(arguments[0]));
        for (int number = 1; number < arguments.length; number++) {
            Told.begin();
            long began = System.nanoTime();
            run(arguments[number], delay);
            double seconds = (System.nanoTime() - began) / 1e9;
            System.out.println(seconds + ";" + Told.rows + ";" + Told.ids + ";" + Told.outOfOrder);
        }
    }
}
